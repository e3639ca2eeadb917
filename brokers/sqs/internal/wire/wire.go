// Package wire converts Watermill messages to bodies and attributes of SQS and SNS messages and
// back, in the format of watermill-aws's default marshalers, so that services on either read each
// other's messages. It also covers what those refuse or drop: any producer's message is read, and
// parts that SQS cannot carry unchanged are packed, so that nothing is lost.
package wire

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

const (
	// UUIDAttribute carries the UUID of a message.
	UUIDAttribute = "_watermill_message_uuid"

	// PackedAttribute carries, as one JSON object, what SQS refuses otherwise: more than ten
	// attributes, empty values, and invalid names and characters. Its fields, all optional:
	//
	//	uuid      the UUID, base64
	//	body      "base64" if the body is the payload in base64, "empty" if the payload is
	//	          empty and the body a placeholder, "plain" if it is no envelope of SNS
	//	          though it looks like one
	//	fields    metadata whose names and values are text
	//	encoded   metadata whose names and values are base64
	PackedAttribute = "_millpond_packed"

	// MaxAttributes is how many attributes a message may have.
	MaxAttributes = 10
)

// Data types of attributes begin with these; a dot and a label may follow.
const (
	typeString = "String"
	typeBinary = "Binary"
)

// ErrReserved: a metadata field is named UUIDAttribute or PackedAttribute, so it could not be told
// from their content.
var ErrReserved = fmt.Errorf("wire: %w: metadata fields "+UUIDAttribute+" and "+PackedAttribute+" are reserved", brokers.ErrUnencodable)

func isReserved(name string) bool { return name == UUIDAttribute || name == PackedAttribute }

// Attribute is one attribute of a message, with text or bytes. Encode makes only text.
type Attribute struct {
	Type   string
	Text   string
	Binary []byte
}

// Size returns how many bytes an attribute counts towards a message's size limit.
func (a Attribute) Size(name string) int {
	return len(name) + len(a.Type) + len(a.Text) + len(a.Binary)
}

// Encode returns a message's body and attributes, without the metadata fields named in except.
// There are at most MaxAttributes.
func Encode(msg *message.Message, except ...string) (body string, attributes map[string]Attribute, err error) {
	for name := range msg.Metadata {
		if isReserved(name) {
			return "", nil, ErrReserved
		}
	}
	attributes = make(map[string]Attribute, min(len(msg.Metadata)+1, MaxAttributes))
	var p packed
	switch {
	case msg.UUID == "": // a value must not be empty, and absence means the same
	case isText(msg.UUID):
		attributes[UUIDAttribute] = Attribute{Type: typeString, Text: msg.UUID}
	default:
		p.UUID = []byte(msg.UUID)
	}
	for name, value := range msg.Metadata {
		switch {
		case slices.Contains(except, name):
		case !validName(name) || value == "" || !isText(value):
			p.add(name, value)
		default:
			attributes[name] = Attribute{Type: typeString, Text: value}
		}
	}
	body = p.body(msg.Payload, len(attributes) == 0)
	if err := p.attach(attributes); err != nil {
		return "", nil, err
	}
	return body, attributes, nil
}

// attach adds the packed attribute if it has content, and packs excess attributes: the last ones by
// name, and trace context after all others.
func (p *packed) attach(attributes map[string]Attribute) error {
	if p.empty() && len(attributes) <= MaxAttributes {
		return nil
	}
	if excess := len(attributes) + 1 - MaxAttributes; excess > 0 {
		names := slices.Sorted(maps.Keys(attributes))
		names = slices.DeleteFunc(names, func(name string) bool { return name == UUIDAttribute })
		slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
		for _, name := range names[len(names)-excess:] {
			p.add(name, attributes[name].Text)
			delete(attributes, name)
		}
	}
	text, err := p.marshal()
	if err != nil {
		return err
	}
	attributes[PackedAttribute] = Attribute{Type: typeString, Text: text}
	return nil
}

// rank sorts the names of trace context first, because services that do not know PackedAttribute
// look for them.
func rank(name string) int {
	switch name {
	case "traceparent", "tracestate", "baggage":
		return 0
	}
	return 1
}

// Decode returns the message of a body and its attributes, from any producer. Without a UUID the
// UUID is empty. It removes SNS's envelope, which is there unless delivery is raw. If packed
// content from another millpond cannot be read, the error says why, and the message has what could
// be read: the body, and the attributes one by one.
func Decode(body string, attributes map[string]Attribute) (*message.Message, error) {
	if len(attributes) == 0 {
		if e, ok := parseEnvelope(body); ok {
			body, attributes = e.Message, e.attributes()
		}
	}
	msg := message.NewMessage("", []byte(body))
	for name, a := range attributes {
		value := a.Text
		if a.isBinary() {
			value = string(a.Binary)
		}
		if name == UUIDAttribute {
			msg.UUID = value
		} else {
			msg.Metadata[name] = value
		}
	}
	text, has := msg.Metadata[PackedAttribute]
	if !has {
		return msg, nil
	}
	p, err := unmarshalPacked(text)
	if err == nil {
		err = p.unpack(msg)
	}
	if err != nil {
		return msg, fmt.Errorf("wire: attribute %s: %w", PackedAttribute, err)
	}
	return msg, nil
}

// isBinary reports whether the value is binary. An unknown type is text, unless there are only
// bytes.
func (a Attribute) isBinary() bool { return a.Text == "" && len(a.Binary) > 0 }
