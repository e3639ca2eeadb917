package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("kafka://a:1,b:2/?in_flight_per_partition=32&order=key&offset=newest&protocol=consumer&session_timeout=6s" +
		"&rebalance_drain=5s&commit_interval=2s&commit_distance=500&redelivery_delay=1s&wait_for_topic=1m&time=producer" +
		"&key_metadata=customer&partitioner=sarama&max_message_bytes=2000000&publish_timeout=3s&create_topics=true&partitions=8&replication=3" +
		"&tls=true&tls_server_name=name&sasl=scram-sha-512&client_id=shop&connect_timeout=4s")
	if err != nil {
		t.Fatal(err)
	}
	got, err := kafka.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	if got.TLS == nil || got.TLS.ServerName != "name" {
		t.Errorf("TLS is %v", got.TLS)
	}
	got.TLS = nil
	want := kafka.Config{
		Brokers: []string{"a:1", "b:2"}, SASL: kafka.SASLScramSHA512, ClientID: "shop", ConnectTimeout: 4 * time.Second,
		Consume: kafka.Consume{
			InFlightPerPartition: 32, Order: kafka.OrderKey, StartAtNewest: true, Protocol: kafka.ProtocolConsumer,
			SessionTimeout: 6 * time.Second, RebalanceDrain: 5 * time.Second, CommitInterval: 2 * time.Second, CommitDistance: 500,
			RedeliveryDelay: time.Second, WaitForTopic: time.Minute, ProducerTime: true,
		},
		Publish: kafka.Publish{
			KeyMetadata: "customer", Partitioner: kafka.PartitionerSarama, MaxBytes: 2_000_000, Timeout: 3 * time.Second,
			CreateTopics: true, Partitions: 8, Replication: 3,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMistakesInURL(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("kafka://user:s3cret@/topic?groups=s3cret&order=sideways&in_flight_per_partition=0&in_flight_per_partition=2" +
		"&session_timeout=ten&commit_distance=-1&protocol=new&partitioner=fnv&tls_ca=/nowhere&offset=latest&create_topics=yes")
	if err != nil {
		t.Fatal(err)
	}
	_, err = kafka.Open(t.Context(), u)
	if err == nil {
		t.Fatal("the URL was accepted")
	}
	for _, says := range []string{
		"names a user", "MILLPOND_KAFKA_PASSWORD", "names a path", "names no broker", `"groups" is not known`, "client_id, ",
		`"order" is "sideways"`, "partition, key or none", `"in_flight_per_partition" is given 2 times`, `"session_timeout" is "ten"`,
		`"commit_distance" is "-1"`, `"protocol" is "new"`, "classic or consumer", "murmur2 or sarama", "add tls=true", "oldest or newest", "true or false",
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q", says)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("the error repeats a secret")
	}
	if t.Failed() {
		t.Log(err)
	}
	u, _ = url.Parse("kafka://a?order=partition&in_flight_per_partition=2&tls=true&tls_ca=/nowhere/ca.pem&tls_cert=/nowhere/cert.pem")
	_, err = kafka.ParseURL(u)
	if err == nil || !strings.Contains(err.Error(), "tls_ca") || !strings.Contains(err.Error(), "tls_cert") {
		t.Errorf("%v", err)
	}
	u, _ = url.Parse("kafka://a?order=partition&in_flight_per_partition=2")
	if _, err = kafka.ParseURL(u); err == nil || !strings.Contains(err.Error(), "cannot be kept") {
		t.Errorf("%v", err)
	}
}

func TestMistakesInConfig(t *testing.T) {
	t.Parallel()
	_, err := kafka.New(t.Context(), kafka.Config{
		SASL: "kerberos", ConnectTimeout: -1,
		Consume: kafka.Consume{Order: "x", Protocol: "x", InFlightPerPartition: -1, CommitDistance: -1},
		Publish: kafka.Publish{Partitioner: "x", MaxBytes: -1, Timeout: -1},
	})
	for _, field := range []string{
		"Brokers", "SASL", "ConnectTimeout", "Consume.Order", "Consume.Protocol", "Consume.InFlightPerPartition",
		"Consume.CommitDistance", "Publish.Partitioner", "Publish.MaxBytes", "Publish.Timeout",
	} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field+" is ") {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
}

// silent returns the address of a server that accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestUnreachable: the error says what to do, soon, and wraps the contract's.
func TestUnreachable(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	t.Setenv(kafka.UsernameVariable, "name")
	t.Setenv(kafka.PasswordVariable, "s3cret")
	plain := testenv.Kafka(t)[0]
	web := httptest.NewTLSServer(nil)
	t.Cleanup(web.Close)
	encrypted := web.Listener.Addr().String()
	for rawURL, says := range map[string][]string{
		"kafka://127.0.0.1:1":                             {"nothing listens there"},
		"kafka://no-such-host.invalid:9092":               {"cannot be resolved"},
		"kafka://" + plain + "/?tls=true":                 {"TLS"},
		"kafka://" + encrypted:                            {"TLS"},
		"kafka://" + encrypted + "/?tls=true":             {"tls_ca"},
		"kafka://" + plain + "/?sasl=plain":               {"sasl"},
		"kafka://" + plain + "/?sasl=scram-sha-256":       {"sasl"},
		"kafka://" + silent(t):                            {"no answer within 2s"},
		"kafka://" + silent(t) + "/?tls=true&sasl=plain":  {"no answer within 2s"},
		"kafka://127.0.0.1:1," + silent(t) + "?tls=false": {"127.0.0.1:1"},
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set("connect_timeout", "2s")
		u.RawQuery = query.Encode()
		started := time.Now()
		b, err := kafka.Open(context.Background(), u)
		took := time.Since(started)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, brokers.ErrUnavailable) {
			t.Errorf("%s: the error is %v", rawURL, err)
			continue
		}
		t.Logf("%s: %v", rawURL, err)
		for _, word := range append(says, u.Host) {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error does not say %q", rawURL, word)
			}
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error repeats the password", rawURL)
		}
		if took > 9*time.Second {
			t.Errorf("%s: it took %s", rawURL, took)
		}
	}
}

func TestCredentialsAreMissing(t *testing.T) {
	t.Setenv(kafka.UsernameVariable, "")
	u, err := url.Parse("kafka://127.0.0.1:1/?sasl=plain")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kafka.Open(t.Context(), u); err == nil || !strings.Contains(err.Error(), kafka.UsernameVariable) {
		t.Errorf("%v", err)
	}
}

func TestOpenThroughMux(t *testing.T) {
	t.Parallel()
	b, err := brokers.Open(t.Context(), "kafka://"+strings.Join(testenv.Kafka(t), ","))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Capabilities(); got.System != "kafka" || !got.DeliveryLimit.Known || got.DeliveryLimit.Max != 0 || got.NativeID || got.Time {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Publisher(brokers.PublisherConfig{}); !errors.Is(err, brokers.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := b.Subscriber(brokers.SubscriberConfig{Group: "group"}); !errors.Is(err, brokers.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestCheck: a service's file can be checked without a broker.
func TestCheck(t *testing.T) {
	t.Parallel()
	if err := brokers.DefaultMux().Check("kafka://nowhere.invalid/?sasl=plain"); err != nil {
		t.Error(err)
	}
	if err := brokers.DefaultMux().Check("kafka://nowhere.invalid/?order=sideways"); err == nil || !strings.Contains(err.Error(), `"order" is "sideways"`) {
		t.Errorf("%v", err)
	}
}

// TestCredentialsAreNotUsed: it is said, but only there where it can be a mistake.
func TestCredentialsAreNotUsed(t *testing.T) {
	t.Setenv(kafka.UsernameVariable, "name")
	for want, config := range map[int]kafka.Config{2: {}, 0: {Options: []kgo.Opt{kgo.ClientID("mine")}}} {
		b := newBroker(t, config)
		logger := watermill.NewCaptureLogger()
		if _, err := b.Subscriber(brokers.SubscriberConfig{Group: "g", Logger: logger}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Publisher(brokers.PublisherConfig{Logger: logger}); err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, m := range logger.Captured()[watermill.InfoLogLevel] {
			if strings.Contains(fmt.Sprint(m.Fields["fix"]), "add the parameter sasl") {
				said++
			}
		}
		if said != want {
			t.Errorf("it was said %d times, not %d", said, want)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse("kafka://a/?tls=true&tls_ca=" + url.QueryEscape(empty))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kafka.ParseURL(u); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("%v", err)
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	config := kafka.Config{Brokers: []string{"a:1"}, SASL: kafka.SASLPlain, Username: "name", Password: "s3cret"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%s", "%q", "%x"} {
		for _, printed := range []string{fmt.Sprintf(verb, config), fmt.Sprintf(verb, &config)} {
			if strings.Contains(printed, "s3cret") || strings.Contains(printed, fmt.Sprintf("%x", "s3cret")) || !strings.Contains(printed, "name") {
				t.Errorf("%s: %s", verb, printed)
			}
		}
	}
}
