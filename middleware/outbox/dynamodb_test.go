package outbox_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
)

// onDynamoDB has no order keys, and no SQL.
func onDynamoDB(tb testing.TB) *rig {
	tb.Helper()
	server := testenv.DynamoDB(tb)
	address := server.URL() + "&" + url.Values{"prefix": {"outbox-" + uuid.NewString() + "_"}}.Encode()
	s, err := dynamodb.Open(tb.Context(), address)
	check(tb, err)
	_, err = s.Migrate(tb.Context())
	check(tb, err)
	check(tb, s.Validate(tb.Context()))
	tb.Cleanup(func() { _ = s.Close() })
	return &rig{tb: tb, address: address, outbox: s, unordered: true, lapse: 4 * time.Second, transact: func(f func(func(stores.PublisherConfig) message.Publisher, execer) error) error {
		return s.Transact(tb.Context(), func(tx *dynamodb.Tx) error {
			return f(func(c stores.PublisherConfig) message.Publisher {
				c.OrderKey = nil
				return dynamodb.NewPublisher(tx, c)
			}, func(string, ...any) error { return errors.ErrUnsupported })
		})
	}, count: func(query string) int {
		if strings.Contains(query, "outbox_") {
			tb.Fatalf("it cannot be counted: %s", query)
		}
		n, _, err := s.MatchingOutputs(context.WithoutCancel(tb.Context()), stores.OutputFilter{State: stores.OutputPending}, 1_000_000)
		check(tb, err)
		return n
	}}
}
