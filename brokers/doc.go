// Package brokers is the contract between millpond and a message broker.
//
// A [Broker] opens Watermill subscribers and publishers, and says in [Capabilities] what
// its server really does. The facts of one delivery (the broker's own id, how often it
// came, where it is stored) travel in the message's context as [Delivery], never in
// metadata alone: metadata survives re-publishing and is then wrong. Some publishers
// preserve contexts, too, so the facts belong to the one *message.Message that they were
// made for.
//
// A message that cannot be decoded is delivered all the same, marked in
// Delivery.Undecodable, so that the inbox can put it into quarantine. A decode error would
// loop before any middleware sees the message. A panic of the program's function for
// reading messages counts as such an error.
//
// The package imports no client library. Adapters live in packages beside it;
// package brokertest proves that one keeps the contract.
package brokers
