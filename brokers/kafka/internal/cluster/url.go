package cluster

import (
	"net/url"

	"github.com/millpond-go/millpond/internal/urlquery"
)

const defaultPort = "9092"

// ReadURL returns u's brokers, and what is wrong with u except in its parameters.
func ReadURL(pkg string, u *url.URL) (brokers []string, errs []error) {
	return urlquery.Hosts(pkg, u, UsernameVariable+" and "+PasswordVariable)
}

// WithPorts returns the addresses, with Kafka's port where none is given.
func WithPorts(brokers []string) []string { return urlquery.WithPorts(brokers, defaultPort) }
