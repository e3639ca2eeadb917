// Package cluster has what Kafka's adapters share for reaching a cluster and authenticating, with
// either client.
package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/exposed"
	"github.com/millpond-go/millpond/internal/unreachable"
)

// The environment variables with the credentials for SASL.
const (
	UsernameVariable = "MILLPOND_KAFKA_USERNAME"
	PasswordVariable = "MILLPOND_KAFKA_PASSWORD" // #nosec G101 -- a name
)

// The SASL mechanisms that need only a name and a password.
const (
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
)

var mechanisms = []string{SASLPlain, SASLScramSHA256, SASLScramSHA512}

// Access has a Config's settings for reaching a cluster.
type Access struct {
	Package            string // prefix of errors
	Brokers            []string
	TLS                *tls.Config
	SASL               string // "": none
	Username, Password string
	ConnectTimeout     time.Duration
}

// Credentials returns the name and the password for SASL, from the environment if a has no user.
// Without SASL there are none.
func (a *Access) Credentials() (username, password string, err error) {
	if a.SASL == "" {
		return "", "", nil
	}
	if a.Username != "" {
		return a.Username, a.Password, nil
	}
	username, password = os.Getenv(UsernameVariable), os.Getenv(PasswordVariable)
	if username == "" || password == "" {
		return "", "", fmt.Errorf("%s: SASL mechanism %q needs credentials: set %s and %s", a.Package, a.SASL, UsernameVariable, PasswordVariable)
	}
	return username, password, nil
}

// Unused returns a log message if the environment has credentials that are not used, or "".
func (a *Access) Unused() string {
	if a.SASL != "" || os.Getenv(UsernameVariable) == "" && os.Getenv(PasswordVariable) == "" {
		return ""
	}
	return fmt.Sprintf("%s or %s is set, but no SASL mechanism is chosen: add the parameter sasl (%s), or unset them", UsernameVariable, PasswordVariable, strings.Join(mechanisms, ", "))
}

// Exposure returns an error if a password could travel unprotected. SCRAM does not send it, only a
// proof.
func (a *Access) Exposure() error {
	if a.SASL != SASLPlain {
		return nil
	}
	return exposed.ByAddress(a.Package, a.Brokers, a.TLS, "write tls=true, and the port that the brokers have for TLS")
}

// Fault is the meaning of the client's error.
type Fault int

const (
	Other          Fault = iota // nothing specific to the client
	BadCredentials              // the broker refuses the credentials
	NoMechanism                 // the broker does not offer the mechanism
	UnwantedSASL                // the broker does not expect SASL
	HungUp                      // the broker closed the connection
)

// Unreachable turns the client's error into one that wraps brokers.ErrUnavailable and says what to
// check. It names addresses, users and mechanisms, never passwords.
func (a *Access) Unreachable(err error, fault Fault) error {
	return fmt.Errorf("%s: %s: %w: %w: %s", a.Package, strings.Join(a.Brokers, ","), brokers.ErrUnavailable, err, a.advice(err, fault))
}

// Answered returns the error of a cluster that was reached before and does not answer now, or nil
// if err is nil.
func (a *Access) Answered(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w: %w", a.Package, strings.Join(a.Brokers, ","), brokers.ErrUnavailable, err)
}

func (a *Access) advice(err error, fault Fault) string {
	switch fault {
	case BadCredentials:
		return fmt.Sprintf("the broker refuses the credentials of user %q with SASL mechanism %q: check %s and %s, and the mechanism", a.Username, a.SASL, UsernameVariable, PasswordVariable)
	case NoMechanism:
		return fmt.Sprintf("the broker does not offer SASL mechanism %q: choose another with the parameter sasl", a.SASL)
	case UnwantedSASL:
		return "the broker wants no SASL on this port: remove the parameter sasl, or use its port for SASL"
	case Other, HungUp:
	}
	if advice := unreachable.Advice(err, a.ConnectTimeout, "remove tls=true or use"); advice != "" {
		return advice
	}
	switch {
	case fault == HungUp, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the broker closed the connection: " + a.hungUp()
	case a.SASL != "": // a client may hide the cause
		return fmt.Sprintf("check host and port, whether the port wants TLS (the parameter tls) and SASL mechanism %q (the parameter sasl), and %s and %s", a.SASL, UsernameVariable, PasswordVariable)
	default:
		return "check host and port, and the parameters tls and sasl"
	}
}

// hungUp returns what a broker that closes connections may expect.
func (a *Access) hungUp() string {
	advice := "it may want TLS on this port, or SASL, or no SASL: check the parameters tls and sasl"
	if a.TLS != nil {
		advice = "it may not speak TLS on this port, or want SASL, or no SASL: check the parameters tls and sasl"
	}
	if unused := a.Unused(); unused != "" {
		advice += "; " + unused
	}
	return advice
}
