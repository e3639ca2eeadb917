package wire

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// envelope is what SNS puts around a message for a queue, unless delivery is raw.
type envelope struct {
	Type              string
	MessageID         string `json:"MessageId"`
	TopicArn          string
	Message           string
	MessageAttributes map[string]struct{ Type, Value string }
}

const notification = "Notification"

// looksLikeEnvelope is quick, and true of every envelope.
func looksLikeEnvelope(body string) bool {
	return strings.HasPrefix(strings.TrimLeft(body, " \t\r\n"), "{") && strings.Contains(body, notification)
}

func parseEnvelope(body string) (envelope, bool) {
	var e envelope
	if !looksLikeEnvelope(body) || json.Unmarshal([]byte(body), &e) != nil {
		return e, false
	}
	return e, e.Type == notification && e.MessageID != "" && strings.HasPrefix(e.TopicArn, "arn:")
}

func (e *envelope) attributes() map[string]Attribute {
	attributes := make(map[string]Attribute, len(e.MessageAttributes))
	for name, a := range e.MessageAttributes {
		attribute := Attribute{Type: a.Type, Text: a.Value}
		if strings.HasPrefix(a.Type, Binary) {
			if value, err := base64.StdEncoding.DecodeString(a.Value); err == nil {
				attribute = Attribute{Type: a.Type, Binary: value}
			}
		}
		attributes[name] = attribute
	}
	return attributes
}
