// Package brokers is the contract between millpond and a message broker.
//
// A [Broker] gives a Watermill subscriber and publisher, and says in
// [Capabilities] what its server really does. What is known about one delivery
// (the broker's own id, how often it came, where it is stored) travels in the
// message's context as [Delivery], never in metadata alone: metadata survives
// re-publishing and then lies. So do contexts that a publisher preserves: what is read
// from one belongs to the *message.Message that it was made for, and to no other.
//
// A message that cannot be decoded is delivered all the same, marked in
// Delivery.Undecodable, so that the inbox can put it into quarantine. Returning a
// decode error instead would loop before any middleware sees the message. A function of
// the program's that reads messages may panic: that is a message that cannot be read, too.
//
// The package imports no client library. Adapters live in packages beside it;
// package brokertest proves that one keeps the contract.
package brokers
