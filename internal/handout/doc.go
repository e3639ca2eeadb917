// Package handout is what the adapters of brokers share on the way of a message: it is
// handed to the consumer of a Subscribe call, awaited, and drained. What an ack, a nack or
// neither means to the server is the adapter's.
package handout
