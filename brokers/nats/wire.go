package nats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/brokers"
)

// Headers of the wire format of watermill-nats' NATSMarshaler.
const (
	uuidHeader = "_watermill_message_uuid"
	// packedHeader carries what headers cannot, as one JSON object of base64 texts: names and
	// values with control characters or surrounding spaces, and such a UUID.
	packedHeader = "_millpond_packed"
)

// errReserved: a metadata field has a name that the wire format uses.
var errReserved = fmt.Errorf("%w: metadata fields %s and %s are reserved", brokers.ErrUnencodable, uuidHeader, packedHeader)

type packed struct {
	UUID   []byte        `json:"uuid,omitempty"`
	Fields []packedField `json:"fields,omitempty"`
}

type packedField struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

// encode returns a message's published form. It copies the payload, which may still be in transit
// when Publish gives up.
func encode(subject string, msg *message.Message, msgID bool) (*natsgo.Msg, error) {
	out := &natsgo.Msg{Subject: subject, Data: bytes.Clone(msg.Payload), Header: make(natsgo.Header, len(msg.Metadata)+1)}
	var p packed
	if isValue(msg.UUID) {
		out.Header[uuidHeader] = []string{msg.UUID}
	} else {
		p.UUID = []byte(msg.UUID)
	}
	if msgID && msg.UUID != "" && isValue(msg.UUID) {
		out.Header[natsgo.MsgIdHdr] = []string{msg.UUID}
	}
	for name, value := range msg.Metadata {
		switch {
		case name == uuidHeader || name == packedHeader:
			return nil, fmt.Errorf("%w: %q", errReserved, name)
		case isName(name) && isValue(value):
			out.Header[name] = []string{value}
		default:
			p.Fields = append(p.Fields, packedField{[]byte(name), []byte(value)})
		}
	}
	if len(p.UUID) > 0 || len(p.Fields) > 0 {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("nats: packing metadata: %w", err)
		}
		out.Header[packedHeader] = []string{string(text)}
	}
	return out, nil
}

// decode returns the message of any producer. With an error it returns what could be read. If a
// header is repeated, the last value has its name, and the others have it with a number.
func decode(from jetstream.Msg) (*message.Message, error) {
	header := from.Headers()
	msg := message.NewMessage(header.Get(uuidHeader), slices.Clone(from.Data()))
	for name, values := range header {
		if name == uuidHeader || name == packedHeader || name == natsgo.MsgIdHdr { // Nats-Msg-Id is Delivery.NativeID
			continue
		}
		for i, value := range values {
			if i < len(values)-1 {
				msg.Metadata[name+"#"+strconv.Itoa(i+1)] = value
			} else {
				msg.Metadata[name] = value
			}
		}
	}
	text := header.Get(packedHeader)
	if text == "" {
		return msg, nil
	}
	var p packed
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return msg, fmt.Errorf("nats: header %s cannot be read: %w", packedHeader, err)
	}
	if len(p.UUID) > 0 {
		msg.UUID = string(p.UUID)
	}
	for _, f := range p.Fields {
		if name := string(f.Name); name != uuidHeader && name != packedHeader { // millpond never packs these
			msg.Metadata[name] = string(f.Value)
		}
	}
	return msg, nil
}

// isName reports whether every server and client keeps a header with this name, without a special
// meaning.
func isName(s string) bool {
	return s != "" && !strings.HasPrefix(strings.ToLower(s), "nats-") && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == ':' || r >= 0x7f })
}

// isValue reports whether a header keeps s unchanged.
func isValue(s string) bool {
	return strings.TrimSpace(s) == s && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
