// Package outbox publishes messages after the transactions that wrote them.
//
// A producer writes messages in its own transaction, with the publisher of its store, such as
// postgres.NewPublisher. A [Relay] publishes committed messages, at least once, and nothing else:
//
//	relay, err := outbox.New(store, outbox.Config{Publishers: map[string]message.Publisher{"": publisher}})
//	if err != nil {
//		return err
//	}
//	go relay.Run(ctx)
//
// With an inbox in front of the receiver, each message has its effect once.
package outbox
