package sqs

import (
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers/sqs/internal/cutoff"
)

// Wires cuts off subscribers, which then are as good as dead.
type Wires = cutoff.Wires[*Subscriber]

// Tap lets the requests of all subscribers of b pass through the wires.
func Tap(b *Broker) *Wires {
	var w Wires
	b.options = func(s *Subscriber) []func(*sqs.Options) {
		return []func(*sqs.Options){func(o *sqs.Options) { o.HTTPClient = w.Through(s, o.HTTPClient) }}
	}
	return &w
}
