package wire

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// envelope is what SNS wraps around a message for a queue, unless delivery is raw.
type envelope struct {
	Type       string              `json:"Type"`
	MessageID  string              `json:"MessageId"`
	TopicARN   string              `json:"TopicArn"`
	Message    string              `json:"Message"`
	Attributes map[string]enclosed `json:"MessageAttributes"`
}

// enclosed is an attribute in an envelope. A binary value is base64.
type enclosed struct {
	Type  string `json:"Type"`
	Value string `json:"Value"`
}

const notification = "Notification"

// looksLikeEnvelope is a quick check that every envelope passes.
func looksLikeEnvelope(body string) bool {
	return strings.HasPrefix(strings.TrimLeft(body, " \t\r\n"), "{") && strings.Contains(body, notification)
}

func parseEnvelope(body string) (envelope, bool) {
	var e envelope
	if !looksLikeEnvelope(body) || json.Unmarshal([]byte(body), &e) != nil {
		return e, false
	}
	return e, e.Type == notification && e.MessageID != "" && strings.HasPrefix(e.TopicARN, "arn:")
}

func (e *envelope) attributes() map[string]Attribute {
	attributes := make(map[string]Attribute, len(e.Attributes))
	for name, a := range e.Attributes {
		attribute := Attribute{Type: a.Type, Text: a.Value}
		if strings.HasPrefix(a.Type, typeBinary) {
			if value, err := base64.StdEncoding.DecodeString(a.Value); err == nil {
				attribute = Attribute{Type: a.Type, Binary: value}
			}
		}
		attributes[name] = attribute
	}
	return attributes
}
