package brokertest

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
)

// universalDrain is short: the suite leaves messages unsettled on purpose.
const universalDrain = 300 * time.Millisecond

// universalTest is one test of Watermill's suite. They are called one by one, because the suite as
// a whole silently skips what does not apply.
type universalTest struct {
	name   string
	run    func(t *testing.T, c tests.TestContext, newPubSub tests.PubSubConstructor)
	absent func(f tests.Features) string // why it does not apply, if it does not
	alone  bool                          // not in parallel
}

func always(tests.Features) string { return "" }

func ordered(f tests.Features) string {
	if !f.GuaranteedOrder {
		return "no order is promised"
	}
	return ""
}

func persistent(f tests.Features) string {
	if !f.Persistent {
		return "messages do not outlive a subscriber"
	}
	return ""
}

func oldMessages(f tests.Features) string {
	if !f.NewSubscriberReceivesOldMessages {
		return "new groups get no old messages"
	}
	return ""
}

func restarts(f tests.Features) string {
	if len(f.RestartServiceCommand) == 0 {
		return "the harness has no command that restarts the server"
	}
	return ""
}

var universalTests = []universalTest{
	{"PublishSubscribe", tests.TestPublishSubscribe, always, false},
	{"ConcurrentSubscribe", tests.TestConcurrentSubscribe, always, false},
	{"ConcurrentSubscribeMultipleTopics", tests.TestConcurrentSubscribeMultipleTopics, always, false},
	{"ResendOnError", tests.TestResendOnError, always, false},
	{"NoAck", tests.TestNoAck, ordered, false},
	{"ContinueAfterSubscribeClose", tests.TestContinueAfterSubscribeClose, persistent, false},
	{"ConcurrentClose", tests.TestConcurrentClose, always, false},
	{"ContinueAfterErrors", tests.TestContinueAfterErrors, always, false},
	{"PublishSubscribeInOrder", tests.TestPublishSubscribeInOrder, ordered, false},
	{"PublisherClose", tests.TestPublisherClose, always, false},
	{"Topic", tests.TestTopic, always, false},
	{"MessageCtx", tests.TestMessageCtx, always, false},
	{"SubscribeCtx", tests.TestSubscribeCtx, always, false},
	{"Reconnect", tests.TestReconnect, restarts, true},
}

// runWatermill runs Watermill's universal suite.
func runWatermill(t *testing.T, h Harness, inFlight int) {
	broker := h.Open(t)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	features := tests.Features{
		ConsumerGroups: !h.OneGroup,
		// Order is a promise to a single Subscribe call with one message in flight.
		GuaranteedOrder:                     broker.Capabilities().Ordered && inFlight == 1,
		GuaranteedOrderWithSingleSubscriber: true,
		Persistent:                          true,
		NewSubscriberReceivesOldMessages:    h.OldMessages && !h.OneGroup,
		ForceShort:                          h.Short,
	}
	if h.Features != nil {
		h.Features(&features)
	}
	open := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		p, err := broker.Publisher(brokers.PublisherConfig{})
		require.NoError(t, err)
		s, err := broker.Subscriber(brokers.SubscriberConfig{Group: group, InFlight: inFlight, DrainTimeout: universalDrain})
		require.NoError(t, err)
		return p, s
	}

	run := func(name string, alone bool, absent string, test func(t *testing.T, c tests.TestContext)) {
		t.Run(name, func(t *testing.T) {
			if absent != "" {
				t.Logf("brokertest: not checked: %s: %s", name, absent)
				return
			}
			if !alone {
				t.Parallel()
			}
			test(t, tests.TestContext{TestID: tests.NewTestID(), Features: features})
		})
	}
	for _, u := range universalTests {
		run(u.name, u.alone, u.absent(features), func(t *testing.T, c tests.TestContext) {
			group := newGroup()
			u.run(t, c, func(t *testing.T) (message.Publisher, message.Subscriber) { return open(t, group) })
		})
	}
	run("NewSubscriberReceivesOldMessages", false, oldMessages(features), func(t *testing.T, c tests.TestContext) {
		tests.TestNewSubscriberReceivesOldMessages(t, c,
			func(t *testing.T) (message.Publisher, message.Subscriber) { return open(t, newGroup()) })
	})
	if !features.ConsumerGroups {
		t.Log("brokertest: not checked: ConsumerGroups: the harness says that there are none")
		return
	}
	run("ConsumerGroups", false, "", func(t *testing.T, c tests.TestContext) {
		tests.TestConsumerGroups(t, c, open)
	})
}
