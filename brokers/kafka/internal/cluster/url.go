package cluster

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

const defaultPort = "9092"

// ReadURL returns the brokers that u names, and what is wrong with u beside its
// parameters.
func ReadURL(pkg string, u *url.URL) (brokers []string, errs []error) {
	if u.User != nil {
		errs = append(errs, fmt.Errorf("%s: the URL names a user: remove it, and set %s and %s", pkg, UsernameVariable, PasswordVariable))
	}
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" {
		errs = append(errs, fmt.Errorf("%s: the URL names a path: write %s://host:port,host:port/?parameter=value, the topic is given to Subscribe and Publish", pkg, u.Scheme))
	}
	if u.Host == "" {
		return nil, append(errs, fmt.Errorf("%s: the URL names no broker: write %s://host:port,host:port", pkg, u.Scheme))
	}
	return strings.Split(u.Host, ","), errs
}

// WithPorts returns the addresses, those without a port with Kafka's.
func WithPorts(brokers []string) []string {
	addresses := make([]string, 0, len(brokers))
	for _, address := range brokers {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), defaultPort)
		}
		addresses = append(addresses, address)
	}
	return addresses
}
