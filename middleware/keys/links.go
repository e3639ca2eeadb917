package keys

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Link finds an id in one place of a message.
type Link struct {
	name   string
	kind   byte   // the kind of its ids, or the first of its kinds
	label  string // distinguishes it from other links of its kind; part of the ids of later ones
	prefix string // set by Then: what its ids begin with
	reused bool   // the id may name another message later
	find   func(*message.Message) (kind byte, value string)
}

// UUID uses Watermill's message UUID, which Watermill publishers set. Messages of other
// producers have none, unless the broker's adapter sets it.
func UUID() Link {
	return Link{name: "uuid", kind: 'u', find: func(m *message.Message) (byte, string) { return 'u', m.UUID }}
}

// Metadata uses a metadata field (a header of the message). The producer must set it to the
// same value when it sends the same message again.
func Metadata(field string) Link {
	return Link{name: "metadata " + field, kind: 'h', label: field, find: func(m *message.Message) (byte, string) {
		return 'h', m.Metadata.Get(field)
	}}
}

// Payload uses a string or a number in a JSON payload, by its path: Payload("order", "id").
// A number is compared as it is written, so 1 and 1.0 are two ids, and neither equals the
// string "1". A string is compared by its text, however it is escaped. A string that is not
// Unicode text, with invalid UTF-8 or half of a surrogate pair, is compared as it is
// written, including its quotes, under its own kind ("r:"), because decoding would make
// different strings equal.
func Payload(path ...string) Link {
	label := strings.Join(path, " ")
	return Link{
		name: strings.TrimSuffix("payload "+label, " "), kind: 'p', label: label,
		find: func(m *message.Message) (byte, string) { return payloadField(m.Payload, path) },
	}
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
		if token := bytes.Trim(raw, " \t\r\n"); !isUnicode(token) {
			return 'r', string(token)
		}
		return 'p', text
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return 'q', number.String()
	}
	return 0, ""
}

// isUnicode reports whether a valid JSON string token is UTF-8 without escaped lone
// surrogates, all of which a decoder replaces by U+FFFD.
func isUnicode(token []byte) bool {
	for i := 0; i < len(token); i++ {
		if token[i] != '\\' {
			continue
		}
		unit, ok := escapedUnit(token[i:])
		switch {
		case !ok:
			i++ // a short escape, maybe of a backslash
		case !utf16.IsSurrogate(unit):
			i += 5
		default:
			low, ok := escapedUnit(token[i+6:])
			if !ok || utf16.DecodeRune(unit, low) == utf8.RuneError {
				return false
			}
			i += 11
		}
	}
	return utf8.Valid(token)
}

// escapedUnit reads the \uXXXX that b begins with.
func escapedUnit(b []byte) (unit rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

// Native uses the id that the broker or its producer gave the message
// (brokers.Delivery.NativeID).
func Native() Link {
	return Link{name: "native", kind: 'n', find: func(m *message.Message) (byte, string) {
		d, _ := brokers.DeliveryOf(m)
		return 'n', d.NativeID
	}}
}

// BrokerKey uses the key by which the producer partitions or orders messages, such as a
// Kafka message key. It is an id only if each key is used for one message.
func BrokerKey() Link {
	return Link{name: "broker key", kind: 'k', reused: true, find: func(m *message.Message) (byte, string) {
		d, _ := brokers.DeliveryOf(m)
		return 'k', string(d.Key)
	}}
}

// Coordinates uses the place where the broker stores the message, such as topic, partition and
// offset. It protects against redelivery, not against a producer that sends a message twice. A
// topic that is created again reuses its coordinates. Only the fingerprint notices that, so it
// must be on.
func Coordinates() Link {
	return Link{name: "coordinates", kind: 'o', reused: true, find: func(m *message.Message) (byte, string) {
		d, _ := brokers.DeliveryOf(m)
		return 'o', d.Coordinates
	}}
}

// Func uses the id that find returns, "" for none. find must return the same id for every
// delivery of a message. If it panics the message has no id.
func Func(name string, find func(*message.Message) string) Link {
	return Link{name: name, kind: 'f', label: name, find: func(m *message.Message) (byte, string) { return 'f', find(m) }}
}

// Scope is a part of the key. Ids are unique within it.
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
		d, _ := brokers.DeliveryOf(m)
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
