package exposed_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/exposed"
)

func TestPassword(t *testing.T) {
	t.Parallel()
	whole := &tls.Config{MinVersion: tls.VersionTLS12}
	blind := &tls.Config{InsecureSkipVerify: true} // #nosec G402 -- that is what is looked at
	someCA := &tls.Config{                         // #nosec G402
		InsecureSkipVerify: true, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return nil },
	}
	ownCA := someCA.Clone()
	ownCA.RootCAs = x509.NewCertPool()
	for name, c := range map[string]struct {
		servers []exposed.Server
		says    string // "": nothing
	}{
		"nobody":            {nil, ""},
		"loopback":          {[]exposed.Server{{Address: "127.0.0.1:1"}, {Address: "127.9.9.9"}, {Address: "[::1]:1"}, {Address: "::1"}, {Address: "::ffff:127.0.0.1"}}, ""},
		"named loopback":    {[]exposed.Server{{Address: "localhost"}, {Address: "LOCALHOST.:1"}, {Address: "db.localhost:1"}}, ""},
		"socket":            {[]exposed.Server{{Address: "/run/postgresql"}}, ""},
		"plain":             {[]exposed.Server{{Address: "db:1"}, {Address: "db:1"}, {Address: "127.0.0.1"}, {Address: "10.0.0.1:2"}}, "to db:1, 10.0.0.1:2 in plain text: fix"},
		"looks like it":     {[]exposed.Server{{Address: "localhost.example:1"}}, "localhost.example:1 in plain text"},
		"all addresses":     {[]exposed.Server{{Address: "0.0.0.0:1"}}, "0.0.0.0:1 in plain text"},
		"verified":          {[]exposed.Server{{Address: "db", TLS: whole}}, ""},
		"not verified":      {[]exposed.Server{{Address: "db", TLS: blind}}, "to db, or to whoever answers in its place, because no certificate is verified: fix"},
		"any authority":     {[]exposed.Server{{Address: "db", TLS: someCA}}, "no certificate is verified"},
		"an authority":      {[]exposed.Server{{Address: "db", TLS: ownCA}}, ""},
		"falls back":        {[]exposed.Server{{Address: "db", TLS: whole}, {Address: "db"}}, "to db in plain text"},
		"one of the others": {[]exposed.Server{{Address: "db", TLS: whole}, {Address: "other", TLS: blind}}, "to other, or"},
	} {
		err := exposed.Password(c.servers, "fix")
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
