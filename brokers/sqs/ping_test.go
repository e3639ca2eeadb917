package sqs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

// A broker can be asked whether SQS answers, before and after a queue is known.
func TestPing(t *testing.T) {
	server := testenv.PrivateSQS(t)
	b := newBroker(t, server.SQSServer, sqs.Config{})
	if err := b.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	named := newBroker(t, server.SQSServer, sqs.Config{Queues: []string{server.NewQueue(t, nil)}})
	if err := named.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, b := range []brokers.Pinger{b, named} {
		if err := b.Ping(ctx); !errors.Is(err, brokers.ErrUnavailable) {
			t.Errorf("nobody answers, and the error is %v", err)
		}
	}
}
