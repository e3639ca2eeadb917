package urlmux_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	amqpofficial "github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/brokers/kafka"
	kafkaofficial "github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/brokers/sqs"
	sqsofficial "github.com/millpond-go/millpond/brokers/sqs/official"
)

// A program that calls an opener by itself may look at the broker, and not at the error.
func TestOpenersReturnNoBrokerWithAnError(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for rawURL, open := range map[string]func(context.Context, *url.URL) (brokers.Broker, error){
		"kafka://127.0.0.1:1/":                                                  kafka.Open,
		"kafka+watermill://127.0.0.1:1/":                                        kafkaofficial.Open,
		"amqp://127.0.0.1:1/":                                                   amqp.Open,
		"amqp+watermill://127.0.0.1:1/":                                         amqpofficial.Open,
		"memory://?when_full=anything":                                          memory.Open,
		"nats://127.0.0.1:1":                                                    nats.Open,
		"sqs://queue?region=eu-central-1&endpoint=http://127.0.0.1:1":           sqs.Open,
		"sqs+watermill://queue?region=eu-central-1&endpoint=http://127.0.0.1:1": sqsofficial.Open,
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := open(ctx, u); err == nil || b != nil {
			t.Errorf("%s: %#v, %v, want nil and an error", rawURL, b, err)
		}
	}
}
