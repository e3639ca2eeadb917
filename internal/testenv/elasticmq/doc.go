// Package elasticmq starts private ElasticMQ servers for tests: SQS's interface, from the
// jars that the project publishes, with data and a port of its own. What it has accepted
// survives its end, however it ends.
//
// It has no SNS (package moto has), and differs from SQS in what it does with a receipt
// handle whose message somebody else has received since: it refuses it.
package elasticmq
