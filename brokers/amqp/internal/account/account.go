// Package account gives package official access to a broker of package amqp. So both log in, name
// queues, refuse messages and explain errors alike.
package account

import (
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
)

// Account is a server with one configuration.
type Account interface {
	// Config returns the amqp.Config with its defaults and without the password.
	Config() any
	Credentials() amqp091.Authentication

	// Queue returns the name of a group's queue.
	Queue(topic, group string) (string, error)

	// Fits returns an error for a message over which the server would close the channel or the
	// connection.
	Fits(body, headers int) error

	// Explain adds a fix and a sentinel to a refused declaration.
	Explain(what string, err error) error
}

// Of returns the account of a broker. Package amqp sets it.
var Of func(b brokers.Broker) Account
