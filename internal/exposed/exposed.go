// Package exposed says where a password can travel without verified TLS. The rule is one
// for all adapters, which know what their configurations mean.
package exposed

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Server is one of the servers that a password may be sent to.
type Server struct {
	Address string      // host, host:port, or the path of a Unix socket
	TLS     *tls.Config // nil if the connection is, or may become, one in plain text
}

// Password returns what to say of a password that is sent to servers, of which those that
// are reached without verified TLS and not by a loopback are named, and what to write
// instead; nil if there is none of these.
func Password(servers []Server, fix string) error {
	var plain, unverified []string
	add := func(list *[]string, address string) {
		if !slices.Contains(*list, address) {
			*list = append(*list, address)
		}
	}
	for _, s := range servers {
		switch {
		case local(s.Address):
		case s.TLS == nil:
			add(&plain, s.Address)
		case !Verifies(s.TLS):
			add(&unverified, s.Address)
		}
	}
	switch {
	case len(plain) > 0:
		return fmt.Errorf("the password can travel to %s in plain text: %s", strings.Join(plain, ", "), fix)
	case len(unverified) > 0:
		return fmt.Errorf("the password can travel to %s, or to whoever answers in its place, because no certificate is verified: %s", strings.Join(unverified, ", "), fix)
	}
	return nil
}

// ByAddress is Password for servers that are all reached alike. Its error begins with the
// name of the package pkg.
func ByAddress(pkg string, addresses []string, secured *tls.Config, fix string) error {
	servers := make([]Server, len(addresses))
	for i, address := range addresses {
		servers[i] = Server{Address: address, TLS: secured}
	}
	if err := Password(servers, fix); err != nil {
		return fmt.Errorf("%s: %w", pkg, err)
	}
	return nil
}

// Verifies reports whether a connection is made only to a server with a certificate for its
// name, or with any one of authorities that the configuration itself names.
func Verifies(c *tls.Config) bool {
	return !c.InsecureSkipVerify || c.RootCAs != nil && (c.VerifyPeerCertificate != nil || c.VerifyConnection != nil)
}

// local reports whether what is sent to an address stays in the machine. Names are not
// looked up.
func local(address string) bool {
	if strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
