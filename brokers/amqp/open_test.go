package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	got := parse(t, "amqps://user:p%40ss@a:1,b:2/a%2Fb?connect_timeout=4s&heartbeat=5s&connection_name=shop&preset=routing&exchange=shop&exchange_type=direct"+
		"&queue_type=classic&delivery_limit=7&declare=false&retry_delays=100ms,2s&redelivery_delay=1s&consumer_timeout=1h&time=producer"+
		"&publish_timeout=3s&max_message_bytes=1000&tls_server_name=name")
	if got.TLS == nil || got.TLS.ServerName != "name" {
		t.Errorf("TLS is %v", got.TLS)
	}
	got.TLS = nil
	want := amqp.Config{
		Addresses: []string{"a:1", "b:2"}, VirtualHost: "a/b", Username: "user", Password: "p@ss",
		ConnectTimeout: 4 * time.Second, Heartbeat: 5 * time.Second, ConnectionName: "shop",
		Topology: amqp.Topology{
			Preset: amqp.PresetRouting, Exchange: "shop", ExchangeType: amqp.ExchangeDirect,
			QueueType: amqp.QueueClassic, DeliveryLimit: 7, AsIs: true,
		},
		Consume: amqp.Consume{
			RetryDelays: []time.Duration{100 * time.Millisecond, 2 * time.Second}, RedeliveryDelay: time.Second,
			ConsumerTimeout: time.Hour, ProducerTime: true,
		},
		Publish: amqp.Publish{Timeout: 3 * time.Second, MaxBytes: 1000},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for path, want := range map[string]string{"": "", "/": "", "/shop": "shop", "/%2F": "/"} {
		if got := parse(t, "amqp://a"+path); got.VirtualHost != want || got.TLS != nil {
			t.Errorf("%q: virtual host %q", path, got.VirtualHost)
		}
	}
}

func TestMistakesInURL(t *testing.T) {
	t.Parallel()
	for rawURL, says := range map[string][]string{
		"amqp://:s3cret@/shop/orders?groups=s3cret&preset=fan&delivery_limit=0&declare=no&retry_delays=10s,1s&time=broker&heartbeat=ten&tls_ca=/nowhere&tls=true": {
			"without a user", amqp.PasswordVariable, "names no broker", "%2F", `"groups" is not known`, `"preset" is "fan"`, "pubsub, queue or routing",
			`"delivery_limit" is "0"`, "true or false", `"retry_delays" is "10s,1s"`, "growing", "none or producer", `"heartbeat" is "ten"`, "write amqps://", `"tls" is not known`,
		},
		"amqp://user@host":                    {"without a password", amqp.UsernameVariable},
		"amqp://a?preset=routing":             {`parameter "exchange" is ""`, "name the exchange"},
		"amqp://a:5672,b:99999/shop":          {"check host:port"},
		"amqp://a:x,b:5672":                   {"check host:port"},
		"amqp://a,,b":                         {"check host:port"},
		"amqp://:5672":                        {"check host:port"},
		"amqp://::1":                          {"check host:port"},
		"amqp://s3cret:1234,b:5672:9/":        {"check host:port"},
		"amqp://a?exchange=x":                 {"only with that"},
		"amqps://a?tls_ca=/nowhere&tls_key=k": {"tls_ca", "tls_cert"},
		"amqp://a/#s3cret":                    {"%23"},
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = amqp.Open(t.Context(), u)
		checked := amqp.Check(u)
		if err == nil || checked == nil || checked.Error() != err.Error() {
			t.Fatalf("%s: Open returned %v, Check %v", rawURL, err, checked)
		}
		for _, word := range says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error does not say %q: %v", rawURL, word, err)
			}
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error repeats a secret: %v", rawURL, err)
		}
	}
}

func TestMistakesInConfig(t *testing.T) {
	t.Parallel()
	_, err := amqp.New(t.Context(), amqp.Config{
		ConnectTimeout: -1, Heartbeat: -1,
		Topology: amqp.Topology{Preset: "x", QueueType: "x", ExchangeType: "x", DeliveryLimit: -1, Exchange: "x"},
		Consume:  amqp.Consume{RetryDelays: []time.Duration{time.Microsecond}, RedeliveryDelay: -1, ConsumerTimeout: -1},
		Publish:  amqp.Publish{Timeout: -1, MaxBytes: -1},
	})
	for _, field := range []string{
		"Addresses", "ConnectTimeout", "Heartbeat", "Topology.Preset", "Topology.QueueType", "Topology.ExchangeType", "Topology.DeliveryLimit", "Topology.Exchange",
		"Consume.RetryDelays", "Consume.RedeliveryDelay", "Consume.ConsumerTimeout", "Publish.Timeout", "Publish.MaxBytes",
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
	t.Parallel()
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, version := range rabbitmq.Versions() {
		u, err := url.Parse(testenv.RabbitMQ(t, version))
		if err != nil {
			t.Fatal(err)
		}
		plain := u.Host
		web := httptest.NewTLSServer(nil)
		t.Cleanup(web.Close)
		encrypted := web.Listener.Addr().String()
		for rawURL, says := range map[string][]string{
			"amqp://127.0.0.1:1":                        {"nothing listens there"},
			"amqp://no-such-host.invalid:5672":          {"cannot be resolved"},
			"amqp://guest:s3cret@" + plain:              {"refuses the credentials", `"guest"`},
			"amqp://nobody:s3cret@" + plain:             {"refuses the credentials", `"nobody"`},
			"amqp://" + plain + "/nowhere":              {`no virtual host "nowhere"`, "add_vhost"},
			"amqps://" + plain:                          {"TLS"},
			"amqp://" + encrypted:                       {"TLS"},
			"amqps://" + encrypted:                      {"tls_ca"},
			"amqp://" + silent(t):                       {"no answer within 2s"},
			"amqps://" + silent(t):                      {"no answer within 2s"},
			"amqp://127.0.0.1:1,no-such-host.invalid:2": {"nothing listens there", "cannot be resolved", "127.0.0.1:1"},
		} {
			// A server makes those wait whose credentials it refuses.
			calls.Go(func() { unreachable(t, rawURL, says) })
		}
	}
}

func unreachable(t *testing.T, rawURL string, says []string) {
	t.Helper()
	config := parse(t, rawURL)
	if strings.Contains(strings.Join(says, ""), "2s") {
		config.ConnectTimeout = 2 * time.Second
	}
	started := time.Now()
	b, err := amqp.New(context.Background(), config)
	took := time.Since(started)
	if err == nil {
		_ = b.Close()
	}
	if !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("%s: the error is %v", rawURL, err)
		return
	}
	t.Logf("%s: %v", rawURL, err)
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the error does not say %q", rawURL, word)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%s: the error repeats the password", rawURL)
	}
	if took > 12*time.Second {
		t.Errorf("%s: it took %s", rawURL, took)
	}
}

func TestCredentialsOfTheEnvironment(t *testing.T) {
	address, err := url.Parse(testenv.RabbitMQ(t, rabbitmq.Packaged))
	if err != nil {
		t.Fatal(err)
	}
	address.User = nil
	t.Setenv(amqp.UsernameVariable, "somebody")
	t.Setenv(amqp.PasswordVariable, "s3cret")
	if b, err := amqp.Open(t.Context(), address); err == nil || !strings.Contains(err.Error(), `"somebody"`) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v, %v", b, err)
	}
}

func TestOpenThroughMux(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		b, err := brokers.Open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		got := b.Capabilities()
		if got.System != "rabbitmq" || !got.DeliveryLimit.Known || got.DeliveryLimit.Max != 21 || !got.NativeID || got.Time || got.SettleLimit != 30*time.Minute {
			t.Errorf("%+v", got)
		}
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Publisher(brokers.PublisherConfig{}); !errors.Is(err, brokers.ErrClosed) {
			t.Errorf("Publisher after Close returned %v", err)
		}
		if _, err := b.Subscriber(brokers.SubscriberConfig{Group: "group"}); !errors.Is(err, brokers.ErrClosed) {
			t.Errorf("Subscriber after Close returned %v", err)
		}
	})
}

func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	config := amqp.Config{Username: "name", Password: "s3cret"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%s", "%q", "%x"} {
		for _, printed := range []string{fmt.Sprintf(verb, config), fmt.Sprintf(verb, &config)} {
			if strings.Contains(printed, "s3cret") || strings.Contains(printed, fmt.Sprintf("%x", "s3cret")) || !strings.Contains(printed, "name") {
				t.Errorf("%s: %s", verb, printed)
			}
		}
	}
}
