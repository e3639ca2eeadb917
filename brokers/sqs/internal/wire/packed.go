package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
)

// packed is the content of PackedAttribute.
type packed struct {
	UUID    []byte            `json:"uuid,omitempty"`
	Body    bodyForm          `json:"body,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"`
	Encoded map[string][]byte `json:"encoded,omitempty"` // names are base64
}

// bodyForm says how the payload is stored in the body.
type bodyForm string

const (
	bodyBase64 bodyForm = "base64"
	bodyEmpty  bodyForm = "empty"
	bodyPlain  bodyForm = "plain"
)

// placeholder is the body of a message without a payload, because SQS accepts no empty body.
const placeholder = "-"

func (p *packed) empty() bool {
	return len(p.UUID) == 0 && p.Body == "" && len(p.Fields) == 0 && len(p.Encoded) == 0
}

func (p *packed) add(name, value string) {
	if isText(name) && isText(value) {
		if p.Fields == nil {
			p.Fields = make(map[string]string)
		}
		p.Fields[name] = value
		return
	}
	if p.Encoded == nil {
		p.Encoded = make(map[string][]byte)
	}
	p.Encoded[base64.StdEncoding.EncodeToString([]byte(name))] = []byte(value)
}

// body returns the body for a payload. bare says that there will be no attribute but the packed
// one.
func (p *packed) body(payload []byte, bare bool) string {
	text := string(payload)
	switch {
	case text == "":
		p.Body = bodyEmpty
		return placeholder
	case !isText(text):
		p.Body = bodyBase64
		return base64.StdEncoding.EncodeToString(payload)
	case bare && looksLikeEnvelope(text):
		p.Body = bodyPlain
	}
	return text
}

func (p *packed) marshal() (string, error) {
	text, err := json.Marshal(p)
	if err != nil { // maps of text and bytes always encode
		return "", fmt.Errorf("wire: packing metadata: %w", err)
	}
	return string(text), nil
}

func unmarshalPacked(text string) (packed, error) {
	var p packed
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return packed{}, fmt.Errorf("its content cannot be read: %w", err)
	}
	return p, nil
}

var (
	errBodyForm = errors.New("the body has an unknown form")
	// errForged: millpond never packs such a field, because it could not be published again.
	errForged = errors.New("a field has a reserved name")
)

// unpack restores all packed parts of the message, or changes nothing.
func (p *packed) unpack(msg *message.Message) error {
	payload := msg.Payload
	switch p.Body {
	case "", bodyPlain:
	case bodyEmpty:
		payload = nil
	case bodyBase64:
		var err error
		if payload, err = base64.StdEncoding.DecodeString(string(msg.Payload)); err != nil {
			return fmt.Errorf("the body is not base64: %w", err)
		}
	default:
		return fmt.Errorf("%w: %q", errBodyForm, p.Body)
	}
	names := make(map[string]string, len(p.Encoded))
	for encoded := range p.Encoded {
		name, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return fmt.Errorf("a name is not base64: %w", err)
		}
		names[encoded] = string(name)
		if isReserved(names[encoded]) {
			return fmt.Errorf("%w: %s", errForged, name)
		}
	}
	for name := range p.Fields {
		if isReserved(name) {
			return fmt.Errorf("%w: %s", errForged, name)
		}
	}
	delete(msg.Metadata, PackedAttribute)
	msg.Payload = payload
	if len(p.UUID) > 0 {
		msg.UUID = string(p.UUID)
	}
	maps.Copy(msg.Metadata, p.Fields)
	for encoded, value := range p.Encoded {
		msg.Metadata[names[encoded]] = string(value)
	}
	return nil
}
