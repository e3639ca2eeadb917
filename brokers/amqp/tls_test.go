package amqp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
)

// encryption is a second port of a server, for TLS, with a certificate for the name
// "broker".
type encryption struct {
	address     string
	certificate string // a file
	settings    map[string]string
}

func newEncryption(t *testing.T) encryption {
	t.Helper()
	dir, err := os.MkdirTemp("", "amqp-tls") //nolint:usetesting // other accounts, such as the server's, cannot read the test's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, DNSNames: []string{"broker"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	certificateFile := write("certificate.pem", "CERTIFICATE", certificate)
	keyFile := write("key.pem", "PRIVATE KEY", private)
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	return encryption{address, certificateFile, map[string]string{
		"listeners.ssl.1": address, "ssl_options.cacertfile": certificateFile, "ssl_options.certfile": certificateFile,
		"ssl_options.keyfile": keyFile, "ssl_options.verify": "verify_none",
	}}
}

// testTLS: the connection is encrypted, and the certificate checked.
func testTLS(t *testing.T, e encryption) {
	testenv.Eventually(t, "the second port answers", func() bool {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", e.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	b := newBroker(t, parse(t, "amqps://"+e.address+"/?tls_server_name=broker&tls_ca="+e.certificate))
	topic := newTopic()
	out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
	if err := publisher(t, b).Publish(topic, newMessages(1)...); err != nil {
		t.Fatal(err)
	}
	msg, _ := receive(t, out)
	msg.Ack()
	unreachable(t, "amqps://"+e.address+"/?tls_ca="+e.certificate, []string{"certificate", "tls_server_name"})
	unreachable(t, "amqps://"+e.address+"/?tls_server_name=broker", []string{"tls_ca"})
	unreachable(t, "amqp://"+strings.Replace(e.address, "127.0.0.1", "localhost", 1), []string{"amqps://"})
}
