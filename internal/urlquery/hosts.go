package urlquery

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Hosts returns the brokers of u, and the mistakes in u apart from its parameters.
// credentials names what to set instead of a user.
func Hosts(pkg string, u *url.URL, credentials string) (hosts []string, errs []error) {
	if u.User != nil {
		errs = append(errs, fmt.Errorf("%s: the URL names a user: remove it, and set %s", pkg, credentials))
	}
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" {
		errs = append(errs, fmt.Errorf("%s: the URL names a path: write %s://host:port,host:port/?parameter=value, the topic is given to Subscribe and Publish", pkg, u.Scheme))
	}
	if u.Host == "" {
		return nil, append(errs, fmt.Errorf("%s: the URL names no broker: write %s://host:port,host:port", pkg, u.Scheme))
	}
	return strings.Split(u.Host, ","), errs
}

// WithPorts returns the addresses, those without a port with the one given.
func WithPorts(addresses []string, port string) []string {
	with := make([]string, 0, len(addresses))
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), port)
		}
		with = append(with, address)
	}
	return with
}
