package amqp

import (
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp/internal/account"
)

func init() {
	account.Of = func(b brokers.Broker) account.Account { return accountOf{b.(*Broker)} }
}

// accountOf gives package official access to a broker.
type accountOf struct{ broker *Broker }

func (a accountOf) Config() any { return a.broker.config }

func (a accountOf) Credentials() amqp091.Authentication { return a.broker.credentials }

func (a accountOf) Queue(topic, group string) (string, error) {
	return a.broker.config.Topology.queue(topic, group)
}

func (a accountOf) Fits(body, headers int) error { return a.broker.fits(body, headers) }

func (a accountOf) Explain(what string, err error) error { return explainDeclaration(what, err) }
