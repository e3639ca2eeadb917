package nats_test

import (
	"context"
	"flag"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestMain lets more tests run at a time than there are cores: they wait for the ack wait,
// mostly.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const ackWait = 4 * time.Second

func open(t testing.TB, address string, change func(*nats.Config)) brokers.Broker {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	config := nats.Config{
		Servers: []string{u.Host}, CreateStreams: true,
		Consume: nats.Consume{AckWait: ackWait, RedeliveryDelay: 10 * time.Millisecond},
	}
	if change != nil {
		change(&config)
	}
	b, err := nats.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// raw publishes as a producer that knows nothing of Watermill.
func raw(t testing.TB, address, topic string, header natsgo.Header, payload []byte) {
	t.Helper()
	conn, err := natsgo.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.PublishMsg(&natsgo.Msg{Subject: topic, Header: header, Data: payload}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

func harness(address string, change func(*nats.Config)) brokertest.Harness {
	return brokertest.Harness{
		Open: func(t testing.TB) brokers.Broker { return open(t, address, change) },
		OpenLimited: func(t testing.TB, limit int) brokers.Broker {
			return open(t, address, func(c *nats.Config) {
				c.Consume.DeliveryLimit = limit
				if change != nil {
					change(c)
				}
			})
		},
		OpenRestartable: func(t testing.TB) (brokers.Broker, func()) {
			server := testenv.PrivateNATS(t)
			return open(t, server.URL(), change), func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
				if err := server.Start(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		KeepsAcks: 2 * time.Second, // it writes a consumer's state at most every 100 ms
		Kill:      func(_ testing.TB, _ brokers.Broker, s message.Subscriber) { s.(*nats.Subscriber).Die() },
		PublishForeign: func(t testing.TB, _ brokers.Broker, topic string, payload []byte) {
			raw(t, address, topic, nil, payload)
		},
		PublishHeaders: func(t testing.TB, _ brokers.Broker, topic, header string, values []string) {
			raw(t, address, topic, natsgo.Header{header: values}, nil)
		},
		PublishUndecodable: func(t testing.TB, _ brokers.Broker, topic string) {
			raw(t, address, topic, natsgo.Header{"_millpond_packed": {"{"}}, []byte("x"))
		},
		OldMessages: true,
		Short:       true,
		TooLarge:    2 << 20,
		Within:      20 * time.Second,
		Quiet:       400 * time.Millisecond,
		Hold:        2 * ackWait,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	address := testenv.NATS(t)
	t.Run("Plain", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, harness(address, nil))
	})
	t.Run("Ordered", func(t *testing.T) {
		t.Parallel()
		h := harness(address, func(c *nats.Config) { c.Consume.Ordered, c.Publish.MsgID = true, true })
		h.Serial = true
		brokertest.Run(t, h)
	})
}

func TestOpenNamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := brokers.Open(t.Context(), "nats://user:s3cret@127.0.0.1:1/topic?ack_wait=10&cretae_streams=true&replicas=0")
	for _, says := range []string{"names a user", "names a path", `parameter "ack_wait"`, `"cretae_streams" is not known`, `parameter "replicas"`} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats the password: %v", err)
	}
}
