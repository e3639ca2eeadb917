// Package exposed says where a password may be sent without verified TLS. All adapters
// share the rule; each describes its own configuration.
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

// Password returns an error that names the servers to which a password is sent without
// verified TLS and not by a loopback, with the fix; nil if there are none.
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

// ByAddress is Password for servers with the same TLS settings. Its error begins with the
// package name pkg.
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

// Verifies reports whether connections need a certificate for the server's name, or one of
// the authorities that the configuration names.
func Verifies(c *tls.Config) bool {
	return !c.InsecureSkipVerify || c.RootCAs != nil && (c.VerifyPeerCertificate != nil || c.VerifyConnection != nil)
}

// local reports whether an address is on this machine. Names are not looked up.
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
