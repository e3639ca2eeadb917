// Package kafka is a broker on Apache Kafka.
package kafka
