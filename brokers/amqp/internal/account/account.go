// Package account is what package official asks a broker of package amqp, so that both log
// in alike, name queues alike, refuse the same messages and say the same of an error.
package account

import (
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
)

// Account is a server as one configuration uses it.
type Account interface {
	// Config returns the amqp.Config with its defaults and without the password.
	Config() any
	Credentials() amqp091.Authentication

	// Queue returns the name of a group's queue.
	Queue(topic, group string) (string, error)

	// Fits returns an error for a message that the server would refuse with its channel, or
	// with the connection.
	Fits(body, headers int) error

	// Explain adds to a refused declaration what to do, and the sentinel that callers test
	// for.
	Explain(what string, err error) error
}

// Of returns the account of a broker. Package amqp sets it.
var Of func(b brokers.Broker) Account
