package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/urlquery"
	"github.com/millpond-go/millpond/router"
)

// TestParametersOfBrokersAreShown: a configuration that is printed shows every parameter of a
// broker but those that are, or name, a secret.
func TestParametersOfBrokersAreShown(t *testing.T) {
	secret := []string{"credentials", "tls_key"}
	for scheme, config := range map[string]any{
		"amqp": &amqp.Config{}, "kafka": &kafka.Config{}, "memory": &memory.Config{}, "nats": &nats.Config{}, "sqs": &sqs.Config{}, "amqps": &urlquery.TLS{},
	} {
		for name := range urlquery.Fields(config) {
			shown := scheme + "://h?" + name + "=1s"
			if slices.Contains(secret, name) {
				shown = scheme + "://h?" + name + "=…"
			}
			assert.Equal(t, shown, router.NewURL(scheme+"://h?"+name+"=1s").String())
		}
	}
}
