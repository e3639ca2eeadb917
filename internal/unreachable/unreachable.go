// Package unreachable explains why a broker cannot be reached.
package unreachable

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"time"
)

// Advice explains an error of the standard library, "" if it cannot. noTLS is the fix for a
// port that does not speak TLS.
func Advice(err error, timeout time.Duration, noTLS string) string {
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		unknownCA x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		network   *net.OpError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "the caller gave up"
	case errors.As(err, &dns):
		return "the name cannot be resolved: check the host"
	case errors.As(err, &unknownCA):
		return "the broker's certificate is of an authority that is not trusted: name it with the parameter tls_ca"
	case errors.As(err, &hostname):
		return "the broker's certificate is for another name: use that name, or the parameter tls_server_name"
	case errors.As(err, &invalid):
		return "the broker's certificate is not valid: renew it, or check the clock"
	case errors.As(err, &network) && network.Op == "remote error": // an alert of TLS
		return "the broker refuses the TLS connection: it may want a certificate of the client (the parameters tls_cert and tls_key), or another one"
	case errors.As(err, &record):
		return "the broker does not speak TLS on this port: " + noTLS + " its TLS port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer within " + timeout.String() + ": check host and port, firewalls, and whether the port wants TLS"
	case errors.As(err, &network) && network.Op == "dial":
		return "nothing listens there: check host and port, and that the broker runs"
	}
	return ""
}
