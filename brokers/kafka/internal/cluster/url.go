package cluster

import (
	"net/url"

	"github.com/millpond-go/millpond/internal/urlquery"
)

const defaultPort = "9092"

// ReadURL returns the brokers that u names, and what is wrong with u beside its
// parameters.
func ReadURL(pkg string, u *url.URL) (brokers []string, errs []error) {
	return urlquery.Hosts(pkg, u, UsernameVariable+" and "+PasswordVariable)
}

// WithPorts returns the addresses, those without a port with Kafka's.
func WithPorts(brokers []string) []string { return urlquery.WithPorts(brokers, defaultPort) }
