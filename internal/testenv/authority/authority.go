// Package authority issues TLS certificates for test servers on this machine and for
// their clients.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates that nobody trusts who does not know its own.
type Authority struct {
	CertFile string // its certificate, in PEM

	dir    string
	issued int64
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// validity is more than any test takes.
const validity = 24 * time.Hour

// New makes an authority that keeps its files in a directory, ca.pem among them.
func New(dir string) (*Authority, error) {
	a := &Authority{CertFile: filepath.Join(dir, "ca.pem"), dir: dir}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	a.cert = a.template("millpond test authority")
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	content, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return a, write(a.CertFile, "CERTIFICATE", content)
}

func (a *Authority) template(name string) *x509.Certificate {
	a.issued++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.issued),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
	}
}

// Issue writes the files name.pem, a certificate for servers and clients, and
// name.key.pem, its key in PKCS #8. It is valid for localhost and 127.0.0.1, or, if hosts
// are given, for those.
func (a *Authority) Issue(name string, hosts ...string) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("authority: %w", err)
	}
	template := a.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1"}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return "", "", fmt.Errorf("authority: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", fmt.Errorf("authority: %w", err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key.pem")
	if err := write(certFile, "CERTIFICATE", cert); err != nil {
		return "", "", err
	}
	return certFile, keyFile, write(keyFile, "PRIVATE KEY", secret)
}

func write(path, kind string, content []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	return nil
}
