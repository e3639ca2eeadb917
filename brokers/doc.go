// Package brokers is the contract between millpond and a message broker.
//
// A [Broker] opens Watermill subscribers and publishers, and its [Capabilities] say what its server
// really does. The facts of one delivery (the broker's own id, the delivery count, the place where
// the message is stored) travel in the message's context as [Delivery], never in metadata alone:
// metadata survives re-publishing, and is then wrong. Some publishers preserve contexts too, so the
// facts belong to one *message.Message only.
//
// A message that cannot be decoded is still delivered, marked in Delivery.Undecodable, so that the
// inbox can quarantine it. Otherwise a decode error would loop before any middleware sees the
// message. A panic of the program's function that reads messages counts as such an error.
//
// The package imports no client library. Adapters are packages beside it. Package brokertest proves
// that an adapter keeps the contract.
package brokers
