package publishing_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/publishing"
)

func TestCloseWaitsForCallsAndLetsNoneBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c publishing.Calls
		if !c.Begin() {
			t.Fatal("the first call cannot begin")
		}
		closed := make(chan struct{})
		go func() { defer close(closed); c.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close does not wait")
		default:
		}
		if c.Begin() {
			t.Error("a call begins after Close")
		}
		c.End()
		<-closed
		c.Close()
	})
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
	if err := publishing.Check("pkg", "topic", []*message.Message{messages[0], nil}); err == nil || !strings.Contains(err.Error(), "message 2 of 2: the message is nil") {
		t.Error(err)
	}
}
