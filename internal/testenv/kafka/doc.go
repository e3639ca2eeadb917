// Package kafka starts private Apache Kafka brokers for tests: one node in KRaft mode,
// from the jars that the project publishes, with data and ports of its own.
package kafka
