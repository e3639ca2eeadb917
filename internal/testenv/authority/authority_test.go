package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/authority"
)

// TestOnlyItsOwnAreTrusted speaks TLS with both sides' certificates.
func TestOnlyItsOwnAreTrusted(t *testing.T) {
	ours, err := authority.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := authority.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair(t, ours, "server")}, ClientCAs: pool(t, ours), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	server.StartTLS()
	defer server.Close()
	for name, c := range map[string]struct {
		trusts, of *authority.Authority
		ok         bool
	}{
		"both":           {ours, ours, true},
		"another server": {theirs, ours, false},
		"another client": {ours, theirs, false},
	} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: pool(t, c.trusts), Certificates: []tls.Certificate{pair(t, c.of, "client")},
		}}
		response, err := (&http.Client{Transport: transport}).Get(server.URL)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
		transport.CloseIdleConnections()
	}
}

func pair(t *testing.T, a *authority.Authority, name string) tls.Certificate {
	t.Helper()
	cert, key, err := a.Issue(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pool(t *testing.T, a *authority.Authority) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(a.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate")
	}
	return p
}
