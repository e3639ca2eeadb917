package cluster_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

func TestCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		access                 cluster.Access
		inName, inPassword     string // of the environment
		wantName, wantPassword string
		fails, unused          bool
	}{
		"none":               {},
		"environment":        {access: cluster.Access{SASL: "plain"}, inName: "a", inPassword: "b", wantName: "a", wantPassword: "b"},
		"given":              {access: cluster.Access{SASL: "plain", Username: "x", Password: "y"}, inName: "a", inPassword: "b", wantName: "x", wantPassword: "y"},
		"no name":            {access: cluster.Access{SASL: "plain"}, inPassword: "b", fails: true},
		"no password":        {access: cluster.Access{SASL: "plain"}, inName: "a", fails: true},
		"without mechanism":  {inName: "a", inPassword: "b", unused: true},
		"a forgotten secret": {inPassword: "b", unused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(cluster.UsernameVariable, c.inName)
			t.Setenv(cluster.PasswordVariable, c.inPassword)
			username, password, err := c.access.Credentials()
			if username != c.wantName || password != c.wantPassword || (err != nil) != c.fails {
				t.Errorf("%q, %q, %v", username, password, err)
			}
			if err != nil && !strings.Contains(err.Error(), cluster.PasswordVariable) {
				t.Errorf("the error does not say what to set: %v", err)
			}
			if unused := c.access.Unused(); (unused != "") != c.unused {
				t.Errorf("unused: %q", unused)
			}
		})
	}
}

func TestUnreachableSaysWhatToDo(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err   error
		fault cluster.Fault
		says  string
	}{
		{io.EOF, cluster.BadCredentials, `credentials of user "shop" with SASL mechanism "plain"`},
		{io.EOF, cluster.NoMechanism, "choose another"},
		{io.EOF, cluster.UnwantedSASL, "remove the parameter sasl"},
		{io.EOF, cluster.HungUp, "parameters tls and sasl"},
		{io.EOF, cluster.Other, "parameters tls and sasl"},
		{&net.DNSError{}, cluster.Other, "check the host"},
		{x509.UnknownAuthorityError{}, cluster.Other, "tls_ca"},
		{x509.HostnameError{Certificate: &x509.Certificate{}}, cluster.Other, "tls_server_name"},
		{x509.CertificateInvalidError{Reason: x509.Expired}, cluster.Other, "not valid"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, cluster.HungUp, "tls_cert"},
		{tls.RecordHeaderError{}, cluster.HungUp, "remove tls=true"},
		{context.DeadlineExceeded, cluster.Other, "no answer within 3s"},
		{refused, cluster.Other, "nothing listens there"},
		{errors.New("?"), cluster.Other, `SASL mechanism "plain" (the parameter sasl)`},
	} {
		a := cluster.Access{Package: "kafka", Brokers: []string{"a:1", "b:2"}, SASL: "plain", Username: "shop", Password: "s3cret", ConnectTimeout: 3 * time.Second}
		err := a.Unreachable(fmt.Errorf("client: %w", c.err), c.fault)
		if !errors.Is(err, brokers.ErrUnavailable) || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "kafka: a:1,b:2: ") {
			t.Errorf("the error does not say %q, or wraps too little: %v", c.says, err)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}

// TestForgottenMechanism: a broker that hangs up on a client which has credentials and
// does not use them most likely wants them.
func TestForgottenMechanism(t *testing.T) {
	t.Setenv(cluster.UsernameVariable, "shop")
	a := cluster.Access{Package: "kafka"}
	if err := a.Unreachable(io.EOF, cluster.HungUp); !strings.Contains(err.Error(), "no SASL mechanism is chosen") {
		t.Error(err)
	}
}
