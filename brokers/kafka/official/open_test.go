package official_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestParseURL(t *testing.T) {
	u, err := url.Parse("kafka+watermill://a,b:9093/?sasl=scram-sha-512&tls=true&tls_server_name=k&client_id=me&connect_timeout=2s" +
		"&offset=newest&session_timeout=6s&redelivery_delay=1s&time=producer" +
		"&key_metadata=customer&max_message_bytes=5&create_topics=true&partitions=3&replication=2")
	if err != nil {
		t.Fatal(err)
	}
	c, err := official.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS == nil || c.TLS.ServerName != "k" {
		t.Errorf("TLS is %+v", c.TLS)
	}
	if strings.Join(c.Brokers, " ") != "a b:9093" || c.SASL != official.SASLScramSHA512 || c.ClientID != "me" || c.ConnectTimeout != 2*time.Second {
		t.Errorf("the configuration is %+v", c)
	}
	consume := official.Consume{
		StartAtNewest: true, SessionTimeout: 6 * time.Second, RedeliveryDelay: time.Second, ProducerTime: true,
	}
	if c.Consume != consume {
		t.Errorf("Consume is %+v", c.Consume)
	}
	if p := c.Publish; p.KeyMetadata != "customer" || p.MaxBytes != 5 || !p.CreateTopics || p.Partitions != 3 || p.Replication != 2 {
		t.Errorf("Publish is %+v", p)
	}
}

// TestMistakesInURL expects every mistake in one error, and no secrets.
func TestMistakesInURL(t *testing.T) {
	_, err := brokers.Open(t.Context(), "kafka+watermill://user:s3cret@a/orders?protocol=consumer&pasword=s3cret&offset=first&session_timeout=10"+
		"&partitions=0&tls_ca=ca.pem&create_topics=yes&sasl=kerberos&client_id=a&client_id=b")
	if err == nil {
		t.Fatal("the URL was opened")
	}
	for _, says := range []string{
		"set MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD", "names a path", `"protocol" is not known`, `"pasword" is not known`,
		`"offset" is "first": use oldest or newest`, `"session_timeout" is "10": use a duration`, `"partitions" is "0": use a number from 1`,
		"add tls=true", `"create_topics" is "yes": use true or false`, `"sasl" is "kerberos": use plain`, `"client_id" is given 2 times`,
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q:\n%v", says, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats a secret: %v", err)
	}
}

// TestCheck: a service's file can be checked without a broker.
func TestCheck(t *testing.T) {
	if err := brokers.DefaultMux().Check("kafka+watermill://nowhere.invalid/?sasl=plain"); err != nil {
		t.Error(err)
	}
	if err := brokers.DefaultMux().Check("kafka+watermill://nowhere.invalid/?order=key"); err == nil || !strings.Contains(err.Error(), `"order" is not known`) {
		t.Errorf("%v", err)
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	config := official.Config{Brokers: []string{"a:1"}, SASL: official.SASLPlain, Username: "name", Password: "s3cret"}
	for _, printed := range []string{fmt.Sprint(config), fmt.Sprintf("%+v", config), fmt.Sprintf("%#v", config), fmt.Sprintf("%d", config), fmt.Sprintf("%s", config), fmt.Sprintf("%+v", &config), fmt.Sprintf("%d", &config)} {
		if strings.Contains(printed, "s3cret") || !strings.Contains(printed, "name") {
			t.Errorf("%s", printed)
		}
	}
}

func TestMistakesInConfig(t *testing.T) {
	_, err := official.New(t.Context(), official.Config{
		SASL: "x", ConnectTimeout: -1, Consume: official.Consume{RedeliveryDelay: -1}, Publish: official.Publish{MaxBytes: -1},
	})
	for _, says := range []string{"Brokers is empty", "Config.SASL", "ConnectTimeout", "Consume.RedeliveryDelay", "Publish.MaxBytes"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
}

func TestMissingCredentials(t *testing.T) {
	t.Setenv("MILLPOND_KAFKA_USERNAME", "")
	_, err := brokers.Open(t.Context(), "kafka+watermill://127.0.0.1:1?sasl=plain")
	if err == nil || !strings.Contains(err.Error(), "set MILLPOND_KAFKA_USERNAME") {
		t.Errorf("got %v", err)
	}
}

// TestCannotConnect opens what cannot be used, which is to be said soon and clearly.
func TestCannotConnect(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // accepts by itself, and never answers
	kafka := testenv.Kafka(t)[0]
	t.Setenv("MILLPOND_KAFKA_USERNAME", "me")
	t.Setenv("MILLPOND_KAFKA_PASSWORD", "s3cret")
	for name, c := range map[string]struct{ rawURL, says string }{
		"nobody listens":  {"kafka+watermill://127.0.0.1:1", "nothing listens there"},
		"unknown name":    {"kafka+watermill://kafka.invalid", "check the host"},
		"nobody answers":  {"kafka+watermill://" + listener.Addr().String() + "?connect_timeout=1s", "no answer within 1s"},
		"TLS to plain":    {"kafka+watermill://" + kafka + "?tls=true", "tls"},
		"SASL to without": {"kafka+watermill://" + kafka + "?sasl=scram-sha-256", "SASL"},
	} {
		t.Run(name, func(t *testing.T) {
			started := time.Now()
			_, err := brokers.Open(t.Context(), c.rawURL)
			if !errors.Is(err, brokers.ErrUnavailable) {
				t.Fatalf("the error does not wrap ErrUnavailable: %v", err)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error does not say %q: %v", c.says, err)
			}
			if took := time.Since(started); took > 25*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestSaramaHasTheLastWord(t *testing.T) {
	var calls int
	b, err := official.New(context.Background(), official.Config{
		Brokers: testenv.Kafka(t),
		Sarama:  func(c *sarama.Config) { calls++; c.ClientID = "mine" },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if calls != 1 {
		t.Errorf("Config.Sarama was called %d times", calls)
	}
}
