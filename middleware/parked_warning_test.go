package middleware_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// Parked messages of a program that has forgotten its retry worker would wait in silence.
func TestParkingWithoutARetryWorkerIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		in := newInbox(t, newLedger(), func(c *middleware.InboxConfig) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		for _, id := range []string{"a", "b"} {
			_, err := in.Middleware(handle(func(*message.Message) error { return errors.New("boom") }))(newMessage(t.Context(), id))
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), "no retry worker has run"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
	})
}
