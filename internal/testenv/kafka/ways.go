package kafka

import (
	"net/url"

	"github.com/millpond-go/millpond/internal/testenv/authority"
)

// Way is a way to the broker, right or wrong, in the words of the adapters' URLs.
type Way struct {
	Name               string
	Address            string
	Parameters         url.Values
	Username, Password string
	Says               string // part of the error; "" if the way is right
}

// Ways returns the ways to a broker that was started with Config.Secured. Certificates of
// a foreign authority are kept in dir.
func (s *Server) Ways(dir string) ([]Way, error) {
	foreign, err := authority.New(dir)
	if err != nil {
		return nil, err
	}
	foreignCert, foreignKey, err := foreign.Issue("client")
	if err != nil {
		return nil, err
	}
	to := s.secured
	cert, key, err := to.Authority.Issue("client")
	if err != nil {
		return nil, err
	}
	var (
		trusting = url.Values{"tls": {"true"}, "tls_ca": {to.Authority.CertFile}}
		shop     = func(w Way) Way { w.Username, w.Password = to.Username, to.Password; return w }
		intruder = func(w Way) Way { w.Username, w.Password = to.Username, "wrong-guess"; return w }
		refused  = "refuses the credentials of user"
	)
	var ways []Way
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		sasl := url.Values{"sasl": {mechanism}}
		ways = append(ways,
			shop(Way{Name: mechanism, Address: to.SASL, Parameters: sasl}),
			shop(Way{Name: mechanism + " with TLS", Address: to.SASLTLS, Parameters: with(trusting, "sasl", mechanism)}),
			intruder(Way{Name: mechanism + ", wrong password", Address: to.SASL, Parameters: sasl, Says: refused}),
			intruder(Way{Name: mechanism + " with TLS, wrong password", Address: to.SASLTLS, Parameters: with(trusting, "sasl", mechanism), Says: refused}),
			shop(Way{Name: mechanism + ", not wanted", Address: s.Address(), Parameters: sasl, Says: "sasl"}),
			shop(Way{Name: mechanism + ", TLS wanted", Address: to.SASLTLS, Parameters: sasl, Says: "TLS"}),
		)
	}
	return append(ways,
		Way{Name: "TLS", Address: to.TLS, Parameters: trusting},
		Way{Name: "client's certificate", Address: to.ClientTLS, Parameters: with(trusting, "tls_cert", cert, "tls_key", key)},
		Way{Name: "no credentials", Address: to.SASL, Says: "SASL"},
		Way{Name: "no credentials with TLS", Address: to.SASLTLS, Parameters: trusting, Says: "SASL"},
		Way{Name: "authority not known", Address: to.TLS, Parameters: url.Values{"tls": {"true"}}, Says: "tls_ca"},
		Way{Name: "another authority", Address: to.TLS, Parameters: with(trusting, "tls_ca", foreign.CertFile), Says: "tls_ca"},
		Way{Name: "another name", Address: to.TLS, Parameters: with(trusting, "tls_server_name", "elsewhere"), Says: "tls_server_name"},
		Way{Name: "no TLS to TLS", Address: to.TLS, Says: "TLS"},
		Way{Name: "TLS to no TLS", Address: s.Address(), Parameters: trusting, Says: "TLS"},
		Way{Name: "client's certificate is missing", Address: to.ClientTLS, Parameters: trusting, Says: "tls_cert"},
		Way{Name: "client's certificate is foreign", Address: to.ClientTLS, Parameters: with(trusting, "tls_cert", foreignCert, "tls_key", foreignKey), Says: "tls_cert"},
	), nil
}

// with returns the values and some more, as names and values in turn.
func with(values url.Values, more ...string) url.Values {
	all := url.Values{}
	for name := range values {
		all.Set(name, values.Get(name))
	}
	for i := 0; i+1 < len(more); i += 2 {
		all.Set(more[i], more[i+1])
	}
	return all
}
