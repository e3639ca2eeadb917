package official_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("amqps+watermill://me:s3cret@a,b:5673/orders?preset=queue&delivery_limit=7&consumer_timeout=5m&tls_server_name=r&publish_timeout=3s")
	if err != nil {
		t.Fatal(err)
	}
	c, err := official.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS == nil || c.TLS.ServerName != "r" || strings.Join(c.Addresses, " ") != "a b:5673" || c.VirtualHost != "orders" || c.Username != "me" || c.Password != "s3cret" ||
		c.Topology.Preset != amqp.PresetQueue || c.Topology.DeliveryLimit != 7 || c.Consume.ConsumerTimeout != 5*time.Minute || c.Publish.Timeout != 3*time.Second {
		t.Errorf("%v", c)
	}
	if printed := fmt.Sprintf("%v %+v %#v %d %s %+v", c, c, c, c, c, &c); strings.Contains(printed, "s3cret") {
		t.Errorf("the password is printed: %s", printed)
	}
}

// TestMistakesInURL expects every mistake in one error, and no secrets.
func TestMistakesInURL(t *testing.T) {
	t.Parallel()
	const rawURL = "amqp+watermill://user:s3cret@a/x/y?pasword=s3cret&delivery_limit=0&preset=fanout&tls_ca=ca.pem"
	_, err := brokers.Open(t.Context(), rawURL)
	for _, says := range []string{
		"the path of the URL is more than a virtual host", `"pasword" is not known`, `"delivery_limit" is "0": use a number from 1`,
		`"preset" is "fanout": use pubsub`, "parameters for TLS, which is off",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q:\n%v", says, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats a secret: %v", err)
	}
	if checked := brokers.DefaultMux().Check(rawURL); checked == nil || checked.Error() != err.Error() {
		t.Errorf("the check says %v", checked)
	}
	if err := brokers.DefaultMux().Check("amqp+watermill://nowhere.invalid"); err != nil {
		t.Error(err)
	}
}

// TestCannotConnect opens what cannot be used, which is to be said soon and clearly.
func TestCannotConnect(t *testing.T) {
	u, err := url.Parse(testenv.RabbitMQ(t, rabbitmq.Newest))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(amqp.UsernameVariable, "me")
	t.Setenv(amqp.PasswordVariable, "s3cret")
	for says, rawURL := range map[string]string{
		"nothing listens there":                "amqp+watermill://127.0.0.1:1",
		`refuses the credentials of user "me"`: "amqp+watermill://" + u.Host,
		"there is no virtual host":             "amqp+watermill://" + u.User.String() + "@" + u.Host + "/none",
		"does not speak TLS":                   "amqps+watermill://" + u.Host,
	} {
		_, err := brokers.Open(t.Context(), rawURL)
		if !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
}

func TestMistakesInConfig(t *testing.T) {
	t.Parallel()
	if _, err := official.New(t.Context(), official.Config{}); err == nil || !strings.Contains(err.Error(), "Config.Addresses is empty") {
		t.Errorf("%v", err)
	}
	b := newBroker(t, parse(t, testenv.RabbitMQ(t, rabbitmq.Newest)))
	if _, err := b.Subscriber(brokers.SubscriberConfig{DrainTimeout: -1}); err == nil || !strings.Contains(err.Error(), "Group is empty") || !strings.Contains(err.Error(), "DrainTimeout") {
		t.Errorf("%v", err)
	}
}

func TestWatermillHasTheLastWord(t *testing.T) {
	t.Parallel()
	config := parse(t, testenv.RabbitMQ(t, rabbitmq.Newest))
	calls := 0
	config.Watermill = func(c *wmamqp.Config) {
		calls++
		c.Consume.Consumer = "mine"
	}
	b := newBroker(t, config)
	subscribe(t, b, "group", newTopic())
	newPublisher(t, b)
	if calls != 2 {
		t.Errorf("Config.Watermill was called %d times", calls)
	}
}

// TestClosed: a broker, subscriber or publisher that is closed says so.
func TestClosed(t *testing.T) {
	t.Parallel()
	b := newBroker(t, parse(t, testenv.RabbitMQ(t, rabbitmq.Newest)))
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group"})
	if err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, b)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	_, subscribing := s.Subscribe(t.Context(), newTopic())
	_, subscriber := b.Subscriber(brokers.SubscriberConfig{Group: "group"})
	_, publisher := b.Publisher(brokers.PublisherConfig{})
	for what, err := range map[string]error{"Subscribe": subscribing, "Subscriber": subscriber, "Publisher": publisher, "Publish": p.Publish("topic", newMessage(""))} {
		if !errors.Is(err, brokers.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTLS is the dialer's: watermill-amqp knows one address, and makes TLS itself.
func TestTLS(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	certificate, key := certificate(t)
	port, err := host.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	testenv.PrivateRabbitMQ(t, rabbitmq.Newest, testenv.WithRabbitMQSettings(map[string]string{
		"listeners.ssl.1": address, "ssl_options.cacertfile": certificate, "ssl_options.certfile": certificate, "ssl_options.keyfile": key,
		"ssl_options.verify": "verify_none",
	}))
	testenv.Eventually(t, "the second listener", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	u, err := url.Parse("amqps+watermill://127.0.0.1:1," + address + "?tls_ca=" + url.QueryEscape(certificate))
	if err != nil {
		t.Fatal(err)
	}
	config, err := official.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	b, topic := newBroker(t, config), newTopic()
	messages := subscribe(t, b, "group", topic)
	publish(t, newPublisher(t, b), topic, newMessage("secret"))
	if msg := next(t, messages); string(msg.Payload) != "secret" || !msg.Ack() {
		t.Errorf("%+v", msg)
	}
}

// certificate makes one for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "millpond"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}
