package keys

import (
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Link is one place where an id may be found.
type Link struct {
	name   string
	reused bool // the id may name another message some day
	find   func(*message.Message) (kind byte, value string)
}

// UUID takes Watermill's message UUID, which Watermill publishers set. Messages of
// other producers have none, except on brokers whose adapter fills it.
func UUID() Link {
	return Link{name: "uuid", find: func(m *message.Message) (byte, string) { return 'u', m.UUID }}
}

// Metadata takes a metadata field (a header of the message) that the producer sets
// to the same value when it sends the same message again.
func Metadata(field string) Link {
	return Link{name: "metadata " + field, find: func(m *message.Message) (byte, string) {
		return 'h', m.Metadata.Get(field)
	}}
}

// Payload takes a field of a JSON payload, a string or a number, found by its path:
// Payload("order", "id"). Of a number the digits count as they are written, so 1
// and 1.0 are two ids, and neither is the string "1".
func Payload(path ...string) Link {
	name := "payload"
	for _, field := range path {
		name += " " + field
	}
	return Link{name: name, find: func(m *message.Message) (byte, string) { return payloadField(m.Payload, path) }}
}

func payloadField(payload []byte, path []string) (kind byte, value string) {
	raw := json.RawMessage(payload)
	for _, field := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return 0, ""
		}
		raw = object[field]
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return 'p', text
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return 'q', number.String()
	}
	return 0, ""
}

// Native takes the id that the broker or its producer gave the message
// (brokers.Delivery.NativeID).
func Native() Link {
	return Link{name: "native", find: func(m *message.Message) (byte, string) {
		d, _ := brokers.DeliveryFrom(m.Context())
		return 'n', d.NativeID
	}}
}

// BrokerKey takes the key by which the producer partitions or orders, such as a
// Kafka message key. It is an id only where each key is used for one message.
func BrokerKey() Link {
	return Link{name: "broker key", reused: true, find: func(m *message.Message) (byte, string) {
		d, _ := brokers.DeliveryFrom(m.Context())
		return 'k', string(d.Key)
	}}
}

// Coordinates takes the place where the broker stores the message, such as topic,
// partition and offset. It protects against redelivery, not against a producer that
// sends twice; and a topic that is created anew uses its places again, which only
// the fingerprint notices: it must be on.
func Coordinates() Link {
	return Link{name: "coordinates", reused: true, find: func(m *message.Message) (byte, string) {
		d, _ := brokers.DeliveryFrom(m.Context())
		return 'o', d.Coordinates
	}}
}

// Func takes the id that find returns, "" for none. It must return the same for
// every delivery of a message.
func Func(name string, find func(*message.Message) string) Link {
	return Link{name: name, find: func(m *message.Message) (byte, string) { return 'f', find(m) }}
}

// Scope is a part of the key within which ids are unique.
type Scope struct {
	name string
	kind byte
	find func(*message.Message) string
}

// Topic scopes ids by the topic that the handler subscribes to.
func Topic() Scope {
	return Scope{name: "topic", kind: 't', find: func(m *message.Message) string {
		if topic := message.SubscribeTopicFromCtx(m.Context()); topic != "" {
			return topic
		}
		d, _ := brokers.DeliveryFrom(m.Context())
		return d.Topic
	}}
}

// EventType scopes ids by the event type in a metadata field.
func EventType(field string) Scope {
	return Scope{name: "event type in " + field, kind: 'e', find: metadataField(field)}
}

// Tenant scopes ids by the tenant in a metadata field. Messages without the field
// form a scope of their own.
func Tenant(field string) Scope {
	return Scope{name: "tenant in " + field, kind: 'c', find: metadataField(field)}
}

func metadataField(field string) func(*message.Message) string {
	return func(m *message.Message) string { return m.Metadata.Get(field) }
}
