package sqs_test

import (
	"context"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

func parse(t *testing.T, rawURL string) (sqs.Config, error) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return sqs.ParseURL(u)
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	got, err := parse(t, "sqs://orders.fifo,payments?region=eu-central-1&endpoint=http://127.0.0.1:9324&connect_timeout=4s"+
		"&queue={topic}-{group}&sns=arn:aws:sns:eu-central-1:123456789012&delivery_limit=5&create_queues=true"+
		"&visibility=1m&wait=20s&pollers=3&linger=20ms&redelivery_delay=2s"+
		"&group_metadata=customer&deduplication_metadata=id&publish_timeout=3s")
	want := sqs.Config{
		Region: "eu-central-1", Endpoint: "http://127.0.0.1:9324", Queues: []string{"orders.fifo", "payments"},
		Queue: "{topic}-{group}", SNS: "arn:aws:sns:eu-central-1:123456789012", DeliveryLimit: 5, CreateQueues: true, ConnectTimeout: 4 * time.Second,
		Consume: sqs.Consume{Visibility: time.Minute, Wait: 20 * time.Second, Pollers: 3, Linger: 20 * time.Millisecond, RedeliveryDelay: 2 * time.Second},
		Publish: sqs.Publish{GroupMetadata: "customer", DeduplicationMetadata: "id", Timeout: 3 * time.Second},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, rawURL := range []string{"sqs://?region=eu-central-1", "sqs://orders", "sqs:///"} {
		if err := brokers.DefaultMux().Check(rawURL); err != nil {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
}

func TestMistakesInURL(t *testing.T) {
	t.Parallel()
	_, err := parse(t, "sqs://key:s3cret@orders/path?secret=s3cret&create_queues=yes&pollers=0&wait=ten&region=a&region=b")
	says(t, err, "names a user", "provider chain", "names a path", `"secret" is not known`, "visibility, wait", "true or false", `"pollers" is "0"`, `"wait" is "ten"`, `"region" is given 2 times`)
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats a secret: %v", err)
	}
	_, err = parse(t, "sqs://a,?endpoint=localhost:9324&queue=orders&sns=orders&delivery_limit=2000&visibility=1500ms&wait=21s")
	for _, parameter := range []string{"endpoint", "queue", "sns", "delivery_limit", "visibility", "wait"} {
		says(t, err, `sqs: parameter "`+parameter+`" is `)
	}
	says(t, err, "the list of queues in the URL is")
	if err != nil && strings.Contains(err.Error(), "Config.") {
		t.Errorf("the errors name what is not in the URL: %v", err)
	}
	_, err = sqs.New(t.Context(), sqs.Config{Endpoint: "localhost:9324", Consume: sqs.Consume{Wait: 21 * time.Second}})
	says(t, err, "sqs: Config.Endpoint is no address", "sqs: Config.Consume.Wait is 21s")
	says(t, brokers.DefaultMux().Check("sqs://?wait=21s"), "whole seconds up to 20s")
}

func TestOpenThroughMux(t *testing.T) {
	s := testenv.SQS(t)
	b, err := brokers.Open(t.Context(), s.URL("sqs"))
	if err != nil {
		t.Fatal(err)
	}
	got := b.Capabilities()
	if got.System != "aws_sqs" || got.DeliveryLimit.Known || got.NativeID || got.Ordered || got.FreeGiveBack || got.SettleLimit != 12*time.Hour {
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
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	_, err = brokers.Open(t.Context(), "sqs://")
	says(t, err, "no region", "AWS_REGION")
	failing := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("none here")
	})
	_, err = sqs.New(t.Context(), sqs.Config{AWS: &aws.Config{Region: "us-east-1", Credentials: failing}})
	says(t, err, "no credentials", "AWS_PROFILE", "none here")
	if !errors.Is(err, sqs.ErrDenied) {
		t.Errorf("%v", err)
	}
	_, err = sqs.New(t.Context(), sqs.Config{Region: "us-east-1", Endpoint: "http://127.0.0.1:1", Queues: []string{"orders"}, ConnectTimeout: 2 * time.Second})
	says(t, err, "orders", "http://127.0.0.1:1")
	if !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestDeliveryLimit is read from the queues, or declared.
func TestDeliveryLimit(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		made := newBroker(t, s, sqs.Config{CreateQueues: true, DeliveryLimit: 4})
		limited := s.QueueName(t, ".fifo")
		if err := subscriber(t, made, brokers.SubscriberConfig{}).SubscribeInitialize(limited); err != nil {
			t.Fatal(err)
		}
		unlimited := s.NewQueue(t, nil)
		b := newBroker(t, s, sqs.Config{Queues: []string{unlimited}})
		if got := b.Capabilities().DeliveryLimit; got != (brokers.DeliveryLimit{Known: true}) {
			t.Errorf("%+v", got)
		}
		if err := subscriber(t, b, brokers.SubscriberConfig{}).SubscribeInitialize(limited); err != nil {
			t.Error(err)
		}
		if got := b.Capabilities().DeliveryLimit; got != (brokers.DeliveryLimit{Known: true, Max: 4}) {
			t.Errorf("%+v", got)
		}
		fifo := newBroker(t, s, sqs.Config{Queues: []string{limited}}).Capabilities()
		if !fifo.NativeID || !fifo.Ordered || fifo.DeliveryLimit.Max != 4 {
			t.Errorf("%+v", fifo)
		}
		_, err := sqs.New(t.Context(), sqs.Config{Region: s.Region(), Endpoint: s.Endpoint(), Queues: []string{limited}, DeliveryLimit: 5})
		says(t, err, "allows 4 receives, and delivery_limit is 5", "maxReceiveCount")
	})
}
