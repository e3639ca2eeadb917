package official_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

func says(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

func TestOpenByURL(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	queue := s.NewQueue(t, nil)
	b, err := brokers.Open(t.Context(), strings.Replace(s.URL(official.Scheme), "://", "://"+queue, 1)+"&visibility=90s&wait=1s")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := brokers.Capabilities{
		System: "aws_sqs", Coordinates: true, DeliveryCount: true, Time: true,
		DeliveryLimit: brokers.DeliveryLimit{Known: true}, DelayedGiveBack: true,
		SettleLimit: 90 * time.Second, ReplayHorizon: brokers.ReplayHorizon{Known: true},
	}
	if got := b.Capabilities(); got != want {
		t.Errorf("the capabilities are %+v", got)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for rawURL, words := range map[string][]string{
		"sqs+watermill://orders?region=eu-central-1": nil,
		"sqs+watermill://?pollers=2&linger=5ms&wait=21s": {
			`parameter "pollers" is for sqs://`, "raise in_flight", `parameter "linger" is for sqs://`, "visibility, wait and redelivery_delay",
			`parameter "wait" is 21s: use whole seconds`,
		},
		"sqs+watermill://?colour=blue":      {`parameter "colour" is not known`},
		"sqs+watermill://key:s3cret@orders": {"provider chain"},
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		err = official.CheckURL(u)
		says(t, err, words...)
		if words == nil && err != nil || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	b := opened(t, s, func(c *sqs.Config) { c.CreateQueues = false })
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := b.Subscriber(brokers.SubscriberConfig{Group: "group"})
	if err != nil {
		t.Fatal(err)
	}

	missing := s.QueueName(t, "")
	if err := p.Publish(missing, message.NewMessage("", nil)); !errors.Is(err, sqs.ErrNoQueue) {
		t.Errorf("publishing to a queue that does not exist: %v", err)
	}
	if _, err := subscriber.Subscribe(t.Context(), missing); !errors.Is(err, sqs.ErrNoQueue) {
		t.Errorf("subscribing to a queue that does not exist: %v", err)
	}

	queue := s.NewQueue(t, nil)
	large := message.NewMessage("", make([]byte, 2<<20))
	if err := p.Publish(queue, message.NewMessage("", nil), large); !errors.Is(err, sqs.ErrTooLarge) {
		t.Errorf("publishing what is too large: %v", err)
	}

	subscribe(t, b, brokers.SubscriberConfig{Group: "one"}, queue)
	other, err := b.Subscriber(brokers.SubscriberConfig{Group: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Subscribe(t.Context(), queue); !errors.Is(err, sqs.ErrGroups) {
		t.Errorf("two groups on a queue: %v", err)
	}

	_, err = official.New(t.Context(), sqs.Config{Consume: sqs.Consume{Pollers: 2, Linger: time.Millisecond}})
	says(t, err, "Config.Consume.Pollers is for sqs://", "Config.Consume.Linger is for sqs://")
	_, err = b.Subscriber(brokers.SubscriberConfig{InFlight: -1, DrainTimeout: -1})
	says(t, err, "Group is empty", "InFlight is -1", "DrainTimeout is -1ns")
	if _, err = official.New(t.Context(), sqs.Config{Region: s.Region(), Endpoint: "nowhere"}); err == nil {
		t.Error("an endpoint that is no address was taken")
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"Publish": p.Publish(queue, large), "Subscribe": subscriber.(message.SubscribeInitializer).SubscribeInitialize(queue),
		"Subscriber": second(b.Subscriber(brokers.SubscriberConfig{Group: "group"})), "Publisher": second(b.Publisher(brokers.PublisherConfig{})),
	} {
		if !errors.Is(err, brokers.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestNothingAnswers: what is wrong is said, in time.
func TestNothingAnswers(t *testing.T) {
	t.Parallel()
	testenv.SQS(t) // credentials
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := official.New(ctx, sqs.Config{Region: "eu-central-1", Endpoint: "http://127.0.0.1:1", Queues: []string{"orders"}, ConnectTimeout: 2 * time.Second})
	if !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("nothing listens: %v", err)
	}
}
