package kafka

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/authority"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Secured are the further ways into a broker that was started with Config.Secured.
type Secured struct {
	SASL      string // address of a port with SASL, without TLS
	TLS       string // with TLS, without SASL
	SASLTLS   string // with both
	ClientTLS string // with TLS, for clients with a certificate only

	// Username and Password are known with the mechanisms PLAIN, SCRAM-SHA-256 and
	// SCRAM-SHA-512.
	Username, Password string

	Authority *authority.Authority // has signed the broker's certificate, and is trusted
}

// The listeners by their names in the properties, with Kafka's names of what they speak.
var securedListeners = []struct{ name, protocol string }{
	{"SASL", "SASL_PLAINTEXT"}, {"TLS", "SSL"}, {"SASLTLS", "SASL_SSL"}, {"CLIENTTLS", "SSL"},
}

// secure chooses ports and makes certificates.
func secure(dir string) (*Secured, error) {
	s := &Secured{Username: "shop", Password: "kept-dark"}
	for _, address := range []*string{&s.SASL, &s.TLS, &s.SASLTLS, &s.ClientTLS} {
		port, err := host.FreePort()
		if err != nil {
			return nil, err
		}
		*address = net.JoinHostPort(loopback, strconv.Itoa(port))
	}
	var err error
	if s.Authority, err = authority.New(dir); err != nil {
		return nil, err
	}
	cert, key, err := s.Authority.Issue("broker")
	if err != nil {
		return nil, err
	}
	// The broker wants both in one file.
	var both []byte
	for _, file := range []string{key, cert} {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		both = append(both, content...)
	}
	return s, os.WriteFile(filepath.Join(dir, keystore), both, 0o600)
}

const keystore = "keystore.pem"

// properties adds the listeners to those of the broker.
func (s *Secured) properties(properties map[string]string, dir string) {
	addresses := []string{s.SASL, s.TLS, s.SASLTLS, s.ClientTLS}
	for i, listener := range securedListeners {
		at := "," + listener.name + "://" + addresses[i]
		properties["listeners"] += at
		properties["advertised.listeners"] += at
		properties["listener.security.protocol.map"] += "," + listener.name + ":" + listener.protocol
		if !strings.HasPrefix(listener.protocol, "SASL") {
			continue
		}
		prefix := "listener.name." + strings.ToLower(listener.name) + "."
		properties[prefix+"plain.sasl.jaas.config"] = fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", s.Username, s.Password)
		for _, mechanism := range scramMechanisms {
			properties[prefix+strings.ToLower(mechanism)+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
	properties["sasl.enabled.mechanisms"] = strings.Join(append([]string{"PLAIN"}, scramMechanisms...), ",")
	properties["ssl.keystore.type"], properties["ssl.keystore.location"] = "PEM", filepath.Join(dir, keystore)
	properties["ssl.truststore.type"], properties["ssl.truststore.location"] = "PEM", s.Authority.CertFile
	properties["listener.name.clienttls.ssl.client.auth"] = "required"
}

var scramMechanisms = []string{"SCRAM-SHA-256", "SCRAM-SHA-512"}

// users are the arguments by which a new broker learns the passwords for SCRAM.
func (s *Secured) users() []string {
	var args []string
	for _, mechanism := range scramMechanisms {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, s.Username, s.Password))
	}
	return slices.Clip(args)
}

// Secured returns the further ways into the broker, nil if it was started without.
func (s *Server) Secured() *Secured { return s.secured }
