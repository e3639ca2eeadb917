package urlquery

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/url"
	"os"
)

// TLS has the parameters tls, tls_ca, tls_cert, tls_key and tls_server_name.
type TLS struct {
	On         bool   `config:"tls"`
	CA         string `config:"tls_ca"` // files, in PEM
	Cert       string `config:"tls_cert"`
	Key        string `config:"tls_key"`
	ServerName string `config:"tls_server_name"`
}

// Config loads the files. It returns nil if TLS is off.
func (t *TLS) Config(pkg string) (*tls.Config, []error) {
	if !t.On {
		if *t != (TLS{}) {
			return nil, []error{fmt.Errorf("%s: the URL has parameters for TLS, which is off: add tls=true", pkg)}
		}
		return nil, nil
	}
	var errs []error
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		config.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: parameter \"tls_ca\": %w: name a file with the certificates of the authority, in PEM", pkg, err))
		case !config.RootCAs.AppendCertsFromPEM(pem):
			errs = append(errs, fmt.Errorf("%s: parameter \"tls_ca\": no certificate in %q: name a file with the certificates of the authority, in PEM", pkg, t.CA))
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: parameters \"tls_cert\" and \"tls_key\": %w: name the files of a certificate and of its key, in PEM", pkg, err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, errs
}

// ReadTLS is Read with the five parameters of TLS, and loads their files. It returns nil if
// TLS is off.
func ReadTLS(pkg string, u *url.URL, setters map[string]Setter) (*tls.Config, []error) {
	var secured TLS
	maps.Copy(setters, Fields(&secured))
	errs := Read(pkg, u, setters)
	config, problems := secured.Config(pkg)
	return config, append(errs, problems...)
}
