package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// neverSeen is in place of the Deduplicator's own, whose goroutine does not end.
type neverSeen struct{}

func (neverSeen) IsDuplicate(context.Context, string) (bool, error) { return false, nil }

func TestMiddlewaresThatCommitWhatFailedAreSaid(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), "sqlite://"+t.TempDir()+"/hotel.db")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	poison, err := watermillmiddleware.PoisonQueue(gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), "poison")
	require.NoError(t, err)
	retry := watermillmiddleware.Retry{MaxRetries: 3}.Middleware
	ignores := watermillmiddleware.NewIgnoreErrors(nil).Middleware
	deduplicates := (&watermillmiddleware.Deduplicator{Repository: neverSeen{}}).Middleware
	for name, c := range map[string]struct {
		around, inside []message.HandlerMiddleware
		said           string
	}{
		"nothing inside":        {},
		"the right order":       {around: []message.HandlerMiddleware{poison, retry}},
		"harmless":              {inside: []message.HandlerMiddleware{watermillmiddleware.CorrelationID}},
		"Retry":                 {inside: []message.HandlerMiddleware{retry}, said: "middleware=Retry"},
		"PoisonQueue and Retry": {inside: []message.HandlerMiddleware{retry, poison}, said: "middleware=PoisonQueue"},
		"IgnoreErrors":          {inside: []message.HandlerMiddleware{ignores}, said: "middleware=IgnoreErrors"},
		"Deduplicator":          {inside: []message.HandlerMiddleware{deduplicates}, said: "middleware=Deduplicator"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "hotel", Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			handler := func(*message.Message) ([]*message.Message, error) { return nil, nil }
			for _, m := range append(append([]message.HandlerMiddleware{}, c.inside...), inbox.Middleware) {
				handler = m(handler)
			}
			for _, m := range c.around {
				handler = m(handler)
			}
			if c.said == "" {
				require.Empty(t, log.String())
				return
			}
			require.Contains(t, log.String(), c.said)
		})
	}
}
