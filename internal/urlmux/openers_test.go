package urlmux_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/brokers/sqs"
)

// A program that calls an opener by itself may look at the broker, and not at the error.
func TestOpenersReturnNoBrokerWithAnError(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for rawURL, open := range map[string]func(context.Context, *url.URL) (brokers.Broker, error){
		"kafka://127.0.0.1:1/": kafka.Open,
		"amqp://127.0.0.1:1/":  amqp.Open,
		"nats://127.0.0.1:1":   nats.Open,
		"sqs://?region=eu-central-1&endpoint=http://127.0.0.1:1": sqs.Open,
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
