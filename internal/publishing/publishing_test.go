package publishing_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/publishing"
)

func TestCloseWaitsForCallsAndLetsNoneBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c publishing.Calls
		messages := []*message.Message{message.NewMessage("id", nil)}
		answer, answered := make(chan error), make(chan error, 1)
		go func() {
			answered <- c.Publish("pkg", "topic", messages, func() error { return <-answer })
		}()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { defer close(closed); _ = c.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close does not wait")
		default:
		}
		if err := c.Publish("pkg", "topic", messages, nil); !errors.Is(err, brokers.ErrClosed) {
			t.Errorf("a call after Close: %v", err)
		}
		answer <- io.EOF
		<-closed
		if err := <-answered; !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		_ = c.Close()
	})
}

func TestEncodeNamesTheMessage(t *testing.T) {
	t.Parallel()
	messages := []*message.Message{message.NewMessage("a", nil), message.NewMessage("b", nil)}
	encode := func(msg *message.Message) (string, error) {
		if msg.UUID == "b" {
			return "", io.EOF
		}
		return msg.UUID, nil
	}
	if all, err := publishing.Encode("pkg", "topic", messages[:1], encode); err != nil || all[0] != "a" {
		t.Errorf("%q, %v", all, err)
	}
	if _, err := publishing.Encode("pkg", "topic", messages, encode); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), `message 2 of 2 (UUID "b")`) {
		t.Error(err)
	}
}

func TestFailuresNameTheFirst(t *testing.T) {
	t.Parallel()
	messages, errs := make([]*message.Message, 20), make([]error, 20)
	for i := range messages {
		messages[i] = message.NewMessage("id", nil)
		if i > 2 {
			errs[i] = io.EOF
		}
	}
	err := publishing.Failures("pkg", "topic", messages, errs)
	if !errors.Is(err, io.EOF) || strings.Count(err.Error(), "\n") != 10 ||
		!strings.HasPrefix(err.Error(), `pkg: publish to "topic", message 4 of 20 (UUID "id"): EOF`) ||
		!strings.HasSuffix(err.Error(), "7 messages more of 20") {
		t.Error(err)
	}
	if err := publishing.Failures("pkg", "topic", messages, make([]error, 20)); err != nil {
		t.Error(err)
	}
	var c publishing.Calls
	if err := c.Publish("pkg", "topic", []*message.Message{messages[0], nil}, nil); err == nil || !strings.Contains(err.Error(), "message 2 of 2: the message is nil") {
		t.Error(err)
	}
}
