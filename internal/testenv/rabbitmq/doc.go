// Package rabbitmq starts private RabbitMQ brokers for tests: one node with data, ports
// and name service of its own, of two versions that differ in much of what they do with
// deliveries.
package rabbitmq
