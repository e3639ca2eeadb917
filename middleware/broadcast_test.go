package middleware_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
)

// Two instances that each get every message: one of them is told that it runs half.
func TestInstancesThatShareABroadcastAreWarned(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		services [2]string
		facts    brokers.Delivery
		runs     int
		warnings int
	}{
		"one consumer":         {[2]string{"cache", "cache"}, brokers.Delivery{Count: 1}, 300, 2},
		"one of each instance": {[2]string{"cache-0", "cache-1"}, brokers.Delivery{Count: 1}, 600, 0},
		"redeliveries":         {[2]string{"cache", "cache"}, brokers.Delivery{Count: 2, Suspect: true}, 300, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			stores, runs := map[string]*ledger{}, 0
			var instances []*middleware.Inbox
			for _, service := range test.services {
				if stores[service] == nil { // a ledger has one consumer
					stores[service] = newLedger()
				}
				instances = append(instances, newInbox(t, stores[service], func(c *middleware.InboxConfig) {
					c.Service, c.Logger = service, slog.New(slog.NewTextHandler(&out, nil))
				}))
			}
			run := handle(func(*message.Message) error { runs++; return nil })
			for i := range 300 {
				for j := range instances {
					_, err := instances[(i+j)%2].Middleware(run)(newMessage(withDelivery(t.Context(), test.facts), fmt.Sprint(i)))
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if n := strings.Count(out.String(), "Broadcast"); n != test.warnings || runs != test.runs {
				t.Errorf("%d warnings, %d runs\n%s", n, runs, out.String())
			}
		})
	}
}
