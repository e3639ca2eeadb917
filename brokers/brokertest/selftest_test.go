package brokertest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

// faults are brokers that break one promise each, with the checks that must notice
// it and a part of what they must say.
var faults = map[string]struct {
	fault  fault
	caught map[string]string
}{
	"drops nacked messages": {
		fault{nack: func(*relay, *message.Message, *brokers.GiveBack) bool { return true }},
		map[string]string{"NackComesAgain": "after the nack", "FactsOfRedelivery": "after nack 1"},
	},
	"exceeds the in-flight limit": {
		fault{group: func(c *brokers.SubscriberConfig) { c.InFlight++ }},
		map[string]string{"InFlightLimit": "slots in use", "InFlightUnderLoad": "the limit is"},
	},
	"hands out one at a time": {
		fault{group: func(c *brokers.SubscriberConfig) { c.InFlight = 1 }},
		map[string]string{"InFlightLimit": "with 1 of 4 slots in use"},
	},
	"ignores the delay": {
		fault{nack: func(_ *relay, _ *message.Message, g *brokers.GiveBack) bool { g.After = 0; return false }},
		map[string]string{"NackDelay": "came again after"},
	},
	"ignores the delay of failures": {
		fault{nack: func(_ *relay, _ *message.Message, g *brokers.GiveBack) bool {
			if g.Failed {
				g.After = 0
			}
			return false
		}},
		map[string]string{"NackDelay": "replaced: true"},
	},
	"asks the message's context of now": {
		fault{askMessage: true},
		map[string]string{"NackDelay": "replaced: true"},
	},
	"leaks edits of handlers": {
		fault{
			hand: func(r *relay, inner, outer *message.Message, _ *brokers.Delivery) {
				maps.Copy(outer.Metadata, r.edits[inner.UUID])
			},
			nack: func(r *relay, outer *message.Message, _ *brokers.GiveBack) bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.edits[outer.UUID] = outer.Metadata
				return false
			},
		},
		map[string]string{"RedeliveryIsFreshCopy": "the edits of a handler came back"},
	},
	"counts wrongly": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.Count = 1 }},
		map[string]string{"FactsOfRedelivery": "Delivery.Count is 1", "DeadConsumer": "Delivery.Count is 1"},
	},
	"counts from zero": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.Count-- }},
		map[string]string{"FactsOfDelivery": "Delivery.Count is 0"},
	},
	"never flags Suspect": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.Suspect = false }},
		map[string]string{"FactsOfRedelivery": "Suspect", "DeadConsumer": "Suspect", "CloseGivesUp": "Suspect"},
	},
	"suspects everything": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.Suspect = true }},
		map[string]string{"SuspicionEnds": "still flagged Suspect"},
	},
	"times deliveries out": {
		fault{timeout: 400 * time.Millisecond},
		map[string]string{"Hold": "less than 1s"},
	},
	"shares what is in hand with who joins": {
		fault{join: func(r *relay) {
			for _, inner := range r.current {
				inner.Nack()
			}
		}},
		map[string]string{"JoinAmidHandler": "came again while its handler ran"},
	},
	"drops nacked messages when a subscriber has joined": {
		fault{nack: func(r *relay, _ *message.Message, _ *brokers.GiveBack) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.joined > 1
		}},
		map[string]string{"JoinAmidPoison": "1 of 40 messages did not come"},
	},
	"loses what is published after a restart": {
		fault{losesAfterRestart: true},
		map[string]string{"Restart": "20 of 220 messages did not come"},
	},
	"brings back at a restart what was acked long before": {
		fault{restore: func(handed []*message.Message) []*message.Message { return handed[:1] }},
		map[string]string{"Restart": "acked and known to the server before it ended, came 1 times"},
	},
	"brings back at a restart all that was acked lately": {
		fault{restore: func(handed []*message.Message) []*message.Message { return handed[len(handed)-5:] }},
		map[string]string{"Restart": "5 messages that were in flight when the server ended came again"},
	},
	"brings back twice what was in flight at a restart": {
		fault{restore: func(handed []*message.Message) []*message.Message {
			return slices.Repeat(handed[len(handed)-1:], 2)
		}},
		map[string]string{"Restart": "in flight when the server ended, came 2 times"},
	},
	"repeats what is acked after a restart": {
		fault{repeatsAfterRestart: true},
		map[string]string{"Restart": "published after the restart by 1 calls, came 2 times"},
	},
	"keeps one of several values of a header": {
		fault{hand: func(_ *relay, _, outer *message.Message, _ *brokers.Delivery) { delete(outer.Metadata, "again[1]") }},
		map[string]string{"RepeatedHeaders": "is lost"},
	},
	"takes a delivery tag for an id": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.NativeID = watermill.NewUUID() }},
		map[string]string{"FactsOfRedelivery": "has other facts"},
	},
	"loses the keys": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.Key = nil }},
		map[string]string{"FactsOfKey": "published was"},
	},
	"hides that it has keys": {
		fault{caps: func(c *brokers.Capabilities) { c.Key = false }},
		map[string]string{"FactsOfKey": "Capabilities.Key is false"},
	},
	"gives all messages one id": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.NativeID = "1" }},
		map[string]string{"FactsTellMessagesApart": "two messages have the NativeID"},
	},
	"gives all messages one place": {
		fault{hand: func(_ *relay, _, _ *message.Message, d *brokers.Delivery) { d.Coordinates = "1" }},
		map[string]string{"FactsTellMessagesApart": "two messages have the Coordinates"},
	},
	"has no facts": {
		fault{context: func(context.Context, *message.Message, brokers.Delivery) context.Context { return context.Background() }},
		map[string]string{"FactsOfDelivery": "no brokers.Delivery", "NackDelay": "SetGiveBack does not work"},
	},
	"keeps the answer of the last delivery": {
		fault{context: func(ctx context.Context, msg *message.Message, d brokers.Delivery) context.Context {
			ctx = brokers.WithDelivery(ctx, msg, d)
			msg.SetContext(ctx)
			if d.Count > 1 {
				brokers.SetGiveBack(msg, brokers.GiveBack{After: time.Nanosecond})
			}
			return ctx
		}},
		map[string]string{"FactsOfRedelivery": "of the one before"},
	},
	"forgets the Subscribe context": {
		fault{context: func(_ context.Context, msg *message.Message, d brokers.Delivery) context.Context {
			return brokers.WithDelivery(context.Background(), msg, d)
		}},
		map[string]string{"SubscribeContext": "lacks the values", "AckAfterContextEnds": "the end of the message's context"},
	},
	"never ends contexts": {
		fault{context: func(ctx context.Context, msg *message.Message, d brokers.Delivery) context.Context {
			return brokers.WithDelivery(context.WithoutCancel(ctx), msg, d)
		}},
		map[string]string{"SubscribeContext": "the end of the context after the ack"},
	},
	"writes into published messages": {
		fault{publish: func(p message.Publisher, topic string, messages []*message.Message) error {
			for _, msg := range messages {
				msg.Metadata.Set("added", "by Publish")
			}
			return p.Publish(topic, messages...)
		}},
		map[string]string{"PublishedIsCopied": "Publish changed"},
	},
	"loses what dead consumers had": {
		fault{kill: func(inner *message.Message) { inner.Ack() }},
		map[string]string{"DeadConsumer": "after the death", "LateAck": "after the death"},
	},
	"takes late acks": {
		fault{lateAck: func(r *relay, outer *message.Message) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.current[outer.UUID].Ack()
		}},
		map[string]string{"LateAck": "a late ack settled"},
	},
	"publishes batches backwards": {
		fault{publish: func(p message.Publisher, topic string, messages []*message.Message) error {
			messages = slices.Clone(messages)
			slices.Reverse(messages)
			return p.Publish(topic, messages...)
		}},
		map[string]string{"Order": "came instead of"},
	},
	"counts \"not now\"": {
		fault{nack: func(_ *relay, _ *message.Message, g *brokers.GiveBack) bool { g.Failed = true; return false }},
		map[string]string{"NotNowIsFree": "as \"not now\""},
	},
	"counts no failures": {
		fault{nack: func(_ *relay, _ *message.Message, g *brokers.GiveBack) bool { g.Failed = false; return false }},
		map[string]string{"DeliveryLimit": "after all 3 deliveries have failed"},
	},
	"delivers once too few": {
		fault{
			config: func(c *memory.Config) { c.DeliveryLimit = max(c.DeliveryLimit-1, 0) },
			caps:   func(c *brokers.Capabilities) { c.DeliveryLimit.Max++ },
		},
		map[string]string{"DeliveryLimit": "after 2 failed deliveries of 3"},
	},
	"has a limit it does not declare": {
		fault{
			config: func(c *memory.Config) { c.DeliveryLimit = 20 },
			caps:   func(c *brokers.Capabilities) { c.DeliveryLimit.Max = 0 },
		},
		map[string]string{"NoDeliveryLimit": "after 20 failed deliveries", "DeliveryLimit": "Capabilities.DeliveryLimit"},
	},
	"has one group": {
		fault{group: func(c *brokers.SubscriberConfig) { c.Group = "the one" }},
		map[string]string{"GroupsGetTheirOwn": "group", "GroupRequired": "without a Group"},
	},
	"has a group per subscriber": {
		fault{group: func(c *brokers.SubscriberConfig) { c.Group = newGroup() }},
		map[string]string{"GroupShares": "two subscribers of one group"},
	},
	"cuts payloads at NUL": {
		fault{hand: func(_ *relay, _, outer *message.Message, _ *brokers.Delivery) {
			outer.Payload, _, _ = bytes.Cut(outer.Payload, []byte{0})
		}},
		map[string]string{"Payloads": "payload \"\\x00\" became \"\""},
	},
	"carries text only": {
		fault{hand: func(_ *relay, _, outer *message.Message, _ *brokers.Delivery) {
			for key, value := range outer.Metadata {
				outer.Metadata[key] = strings.ToValidUTF8(value, string(utf8.RuneError))
			}
		}},
		map[string]string{"Metadata": "binary"},
	},
	"folds case": {
		fault{hand: func(_ *relay, _, outer *message.Message, _ *brokers.Delivery) {
			for key, value := range outer.Metadata {
				delete(outer.Metadata, key)
				outer.Metadata[strings.ToLower(key)] = value
			}
		}},
		map[string]string{"Metadata": "Case"},
	},
	"drops messages of a known UUID": {
		fault{publish: func() func(message.Publisher, string, []*message.Message) error {
			return func(p message.Publisher, topic string, messages []*message.Message) error {
				return p.Publish(topic, slices.CompactFunc(slices.Clone(messages), func(a, b *message.Message) bool { return a.UUID == b.UUID })...)
			}
		}()},
		map[string]string{"NoUUID": "no message came"},
	},
	"cannot read other producers": {
		fault{noForeign: true},
		map[string]string{"Foreign": "marked undecodable"},
	},
	"does not mark the undecodable": {
		fault{noMarks: true},
		map[string]string{"Undecodable": "Undecodable is nil"},
	},
	"does not drain": {
		fault{closeAbandons: true},
		map[string]string{"CloseWaitsForHandler": "Close returned", "CloseAtOnce": "one of several calls", "RouterCloseLosesNothing": "times across"},
	},
	"drains less than DrainTimeout": {
		fault{group: func(c *brokers.SubscriberConfig) { c.DrainTimeout = time.Millisecond }},
		map[string]string{"CloseGivesUp": "Close gave up", "CloseWaitsForHandler": "Close returned"},
	},
	"nacks what is in flight when the context ends": {
		fault{nackOnEnd: true},
		map[string]string{"AckAfterContextEnds": "did not count", "CloseWaitsForHandler": "Close returned"},
	},
	"loses what it had in hand": {
		fault{unread: func(inner *message.Message) { inner.Ack() }},
		map[string]string{"CloseKeepsUnbegun": "before and after Close"},
	},
	"blames all messages for one": {
		fault{each: func(errs []error) []error { return slices.Repeat([]error{errors.Join(errs...)}, len(errs)) }},
		map[string]string{"PublishEach": "messages beside one that is refused"},
	},
	"publishes after Close": {
		fault{publisherNoClose: true},
		map[string]string{"PublisherClosed": "returned <nil>"},
	},
	"has errors of its own": {
		fault{subscribeOtherErr: true},
		map[string]string{"SubscriberClosed": "something else"},
	},
}

// TestFaultsAreCaught shows that each check can fail, and for the right reason.
func TestFaultsAreCaught(t *testing.T) {
	byName := make(map[string]check)
	uncaught := make(map[string]bool)
	for _, c := range checks {
		byName[c.name] = c
		uncaught[c.name] = true
	}
	for name, f := range faults {
		for checkName, says := range f.caught {
			delete(uncaught, checkName)
			t.Run(name+"/"+checkName, func(t *testing.T) {
				t.Parallel()
				// A busy machine may be late with what is wrong, or with all the rest.
				var err error
				for within, quiet := 2*time.Second, 200*time.Millisecond; within < 10*time.Second; within, quiet = 2*within, 2*quiet {
					h := relayHarness(f.fault)
					h.Within, h.Quiet = within, quiet
					e := newEnv(t, h)
					err = byName[checkName].run(e)
					e.close()
					if err != nil && strings.Contains(err.Error(), says) {
						return
					}
				}
				if err == nil {
					t.Fatalf("check %s passes with a broker that %s", checkName, name)
				}
				t.Errorf("check %s fails for another reason than %q: %v", checkName, says, err)
			})
		}
	}
	for name := range uncaught {
		t.Errorf("no fault shows that check %s can fail", name)
	}
}

// TestNoFault shows that what the faulty brokers are built on is right.
func TestNoFault(t *testing.T) {
	h := relayHarness(fault{})
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, h)
			defer e.close()
			if err := c.run(e); err != nil {
				t.Error(err)
			}
		})
	}
}
