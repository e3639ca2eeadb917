package middleware_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// copies is a publisher that keeps what it is given.
type copies struct {
	mu        sync.Mutex
	publish   func(n int) error // n counts from 1
	tried     int
	published []*message.Message
}

func (c *copies) Publish(_ string, messages ...*message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried++
	if c.publish != nil {
		if err := c.publish(c.tried); err != nil {
			return err
		}
	}
	c.published = append(c.published, messages...)
	return nil
}

func (*copies) Close() error { return nil }

func withCopies(c *copies) func(*middleware.InboxConfig) {
	return func(config *middleware.InboxConfig) {
		config.DeadLetters = middleware.DeadLetterConfig{Publisher: c, Topic: "dead"}
	}
}

// Kafka partitions copies as it did the messages.
func TestCopyHasTheKeyOfItsMessage(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, {}, []byte("customer-1")} {
		for _, retried := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, runs := &copies{}, 0
				in := newInbox(t, newLedger(), withCopies(c))
				handler := func(*message.Message) error {
					if runs++; retried && runs == 1 {
						return errors.New("not yet")
					}
					return middleware.Permanent(errors.New("never"))
				}
				if _, err := in.Middleware(handle(handler))(newMessage(withDelivery(t.Context(), brokers.Delivery{Key: key}), "a")); err != nil {
					t.Error(err)
				}
				work(t, in, handler, func() { <-time.After(time.Minute) })
				if len(c.published) != 1 {
					t.Fatalf("%d copies", len(c.published))
				}
				if got := brokers.KeyOf(c.published[0]); !bytes.Equal(got, key) || (got == nil) != (key == nil) {
					t.Errorf("the key is %q, want %q; retried %t", got, key, retried)
				}
			})
		}
	}
}

// Recorded first and then not published, the copy would be lost with the process.
func TestDeadLetterIsPublishedBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	c := &copies{}
	store := &scriptedStore{}
	store.record = func(int, stores.Failure) error {
		if len(c.published) != 1 {
			t.Error("recorded before the copy was published")
		}
		return nil
	}
	reason := strings.Repeat("no such account ", 15)
	m := newMessage(t.Context(), "a")
	m.Metadata.Set("event", "placed")
	_, err := newInbox(t, store, withCopies(c)).Middleware(handle(func(m *message.Message) error {
		m.Payload = []byte("changed")
		return middleware.Permanent(errors.New(reason))
	}))(m)
	if err != nil || len(c.published) != 1 || len(store.recorded) != 1 {
		t.Fatal(err, c.published, store.recorded)
	}
	letter := c.published[0]
	if letter.UUID != "a" || string(letter.Payload) != "payload of a" {
		t.Errorf("not as it arrived: %+v", letter)
	}
	for name, want := range map[string]string{
		"event": "placed", middleware.MetadataConsumer: "inventory/stock", middleware.MetadataClass: "permanent",
		middleware.MetadataAttempts: "1", middleware.MetadataError: (reason + " [given up: a permanent error]")[:stores.MaxHistoryErrorBytes],
	} {
		if got := letter.Metadata[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestMessagesThatAreTriedAgainAreNotCopied(t *testing.T) {
	t.Parallel()
	c := &copies{}
	if _, err := newInbox(t, &scriptedStore{}, withCopies(c)).Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil || c.tried != 0 {
		t.Error(err, c.tried)
	}
}

func TestDeadLetterIsHeldWhileItsCopyCannotBePublished(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]func(int) error{
		"error": func(n int) error {
			if n < 4 {
				return errors.New("no broker")
			}
			return nil
		},
		"panic": func(n int) error {
			if n < 4 {
				panic("no broker")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, store, runs := &copies{publish: publish}, newLedger(), 0
				_, err := newInbox(t, store, withCopies(c)).Middleware(handle(func(*message.Message) error {
					runs++
					return middleware.Permanent(errors.New("boom"))
				}))(newMessage(t.Context(), "a"))
				if err != nil || c.tried != 4 || runs != 1 || store.row("a").status != stores.StatusFailed {
					t.Error(err, c.tried, runs, store.story())
				}
			})
		})
	}
}

func TestDeadLetterIsCopiedOncePerDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := &copies{}, newLedger()
		failures := 3
		store.fault = func(call string) error {
			if call == "record" {
				if failures--; failures >= 0 {
					return stores.ErrUnavailable
				}
			}
			return nil
		}
		_, err := newInbox(t, store, withCopies(c)).Middleware(handle(func(*message.Message) error {
			return middleware.Permanent(errors.New("boom"))
		}))(newMessage(t.Context(), "a"))
		if err != nil || store.calls("record") != 4 || c.tried != 1 || store.row("a").status != stores.StatusFailed {
			t.Error(err, c.tried, store.story())
		}
	})
}
