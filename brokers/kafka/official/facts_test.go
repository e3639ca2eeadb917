package official_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

// What is told of a record is what it has, on the first delivery and on the next: key and
// payload, nil or empty, and its time, if that is asked for.
func TestFactsOfKeyedRecordsAndTombstones(t *testing.T) {
	addresses := testenv.Kafka(t)
	topic, at := newTopic(t, addresses, 1), time.UnixMilli(1_700_000_000_123)
	records := []*kgo.Record{
		{Key: []byte("customer-7"), Value: []byte("payload")},
		{Key: []byte("customer-7")}, // a tombstone
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("\x00\xff"), Value: []byte("payload")},
		{Value: []byte("payload")},
	}
	for _, r := range records {
		r.Topic, r.Timestamp = topic, at
		produce(t, addresses, r)
	}
	b := newBroker(t, official.Config{Consume: official.Consume{ProducerTime: true, RedeliveryDelay: time.Millisecond}})
	if can := b.Capabilities(); !can.Key || !can.Time || !can.Coordinates || can.NativeID {
		t.Errorf("%+v", can)
	}
	_, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	for i, r := range records {
		for _, settle := range []string{"nack", "ack"} {
			msg := next(t, messages)
			d, known := brokers.DeliveryOf(msg)
			if !known || !same(d.Key, r.Key) || !same(msg.Payload, r.Value) || !d.Time.Equal(at) || d.Topic != topic || d.NativeID != "" || d.Coordinates == "" {
				t.Errorf("record %d is told to be %#v, with the payload %#v", i, d, msg.Payload)
			}
			if settle == "ack" {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
	}
}

func same(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }
