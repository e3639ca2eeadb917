package amqp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// TestRefusalNamesTheParameter: what is there already says what to write into the URL.
func TestRefusalNamesTheParameter(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		for says, c := range map[string]struct {
			there, here string // parameters
		}{
			"set delivery_limit=30 here":                          {"delivery_limit=30", ""},
			"set queue_type=classic here, if it is a classic one": {"queue_type=classic", ""},
			"set queue_type=quorum here":                          {"", "queue_type=classic"},
			"set retry_delays=beginning with 2s here":             {"retry_delays=2s,10m", ""},
			"set retry_delays=ending with 1m0s here":              {"retry_delays=1s,1m", ""},
			"set preset=routing and exchange_type=topic here":     {"preset=routing&exchange={}", ""},
			"set preset=routing and exchange_type=direct here":    {"preset=routing&exchange={}&exchange_type=direct", "preset=routing&exchange={}"},
			"set preset=pubsub here":                              {"", "preset=routing&exchange={}"},
		} {
			topic := newTopic()
			subscribed := func(parameters string) error {
				config := parse(t, address+"?"+strings.ReplaceAll(parameters, "{}", topic))
				return subscriber(t, newBroker(t, config), brokers.SubscriberConfig{}).SubscribeInitialize(topic)
			}
			if strings.Contains(says, "retry_delays") && !strings.HasSuffix(t.Name(), string(rabbitmq.Newest)) {
				continue // servers before 4.3 do not compare what they do not know
			}
			if err := subscribed(c.there); err != nil {
				t.Errorf("%s: %v", c.there, err)
			}
			if err := subscribed(c.here); !errors.Is(err, amqp.ErrDeclaredOtherwise) || !strings.Contains(err.Error(), ": "+says+", ") {
				t.Errorf("declared with %q, used with %q: %v", c.there, c.here, err)
			}
		}
	})
}

// TestRefusalWithoutAParameter: queues of other programs have what no parameter makes.
func TestRefusalWithoutAParameter(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		for says, arguments := range map[string]amqp091.Table{
			"set queue_type=classic here, if it is a classic one": nil,
			"use the same parameters here as where it was":        {"x-queue-type": "classic", "x-max-length": 5},
			"it differs in what queue_type sets":                  {"x-queue-type": "stream"},
		} {
			topic := newTopic()
			if _, err := channel(t, address).QueueDeclare(topic+"_group", true, false, false, false, arguments); err != nil {
				t.Fatal(err)
			}
			parameters := ""
			if arguments["x-max-length"] != nil {
				parameters = "?queue_type=classic"
			}
			err := subscriber(t, newBroker(t, parse(t, address+parameters)), brokers.SubscriberConfig{}).SubscribeInitialize(topic)
			if !errors.Is(err, amqp.ErrDeclaredOtherwise) || !strings.Contains(err.Error(), says) {
				t.Errorf("arguments %v: %v", arguments, err)
			}
		}
	})
}
