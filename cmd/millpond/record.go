package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// The records of -o json and jsonl. Names stay; fields may be added. Times are RFC 3339 in UTC.
// Fields without a value are left out.

// text is a string, or {"base64": "…"} if it is not valid UTF-8.
type text string

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return marshal(string(t))
	}
	return marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(t))})
}

// marshal is json.Marshal without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) { return encodeJSON(v, "", false) }

// payload is {"json": …} with the payload itself, and numbers unchanged, if it is JSON; {"text":
// "…"} if it is valid UTF-8; and otherwise {"base64": "…"}.
type payload []byte

// MarshalJSON implements json.Marshaler.
func (b payload) MarshalJSON() ([]byte, error) {
	switch {
	case utf8.Valid(b) && json.Valid(b):
		return marshal(map[string]json.RawMessage{"json": json.RawMessage(b)})
	case utf8.Valid(b):
		return marshal(map[string]string{"text": string(b)})
	}
	return marshal(map[string][]byte{"base64": b})
}

// consumerRecord is part of every record that is about a consumer.
type consumerRecord struct {
	Consumer string `json:"consumer"` // service/handler
	Service  string `json:"service"`
	Handler  string `json:"handler"`
}

func consumerOf(c stores.Consumer) consumerRecord {
	return consumerRecord{consumerName(c), c.Service, c.Handler}
}

// consumerName is empty for a record that is no consumer's.
func consumerName(c stores.Consumer) string {
	if c == (stores.Consumer{}) {
		return ""
	}
	return c.String()
}

// idRecord is a message id, as --id takes it and byte by byte.
type idRecord struct {
	MessageID    string `json:"message_id,omitempty"`
	MessageIDHex string `json:"message_id_hex,omitempty"`
}

func idOf(id []byte) idRecord { return idRecord{showID(id), hex.EncodeToString(id)} }

// showID returns an id as people know it, quoted.
func showID(id []byte) string { return quoteID(keys.Format(id)) }

// contentRecord is what is kept of a message. Payload, metadata and the key are as the codec made
// them.
type contentRecord struct {
	Topic            text            `json:"topic,omitempty"`
	Coordinates      text            `json:"coordinates,omitempty"`
	Key              *text           `json:"key,omitempty"` // the broker's; "" is a key
	NativeID         text            `json:"native_id,omitempty"`
	BrokerTime       string          `json:"broker_time,omitempty"` // of any year
	UUID             text            `json:"uuid,omitempty"`
	Codec            text            `json:"codec,omitempty"`
	PayloadBytes     int             `json:"payload_bytes"` // of everything that is kept
	Metadata         map[string]text `json:"metadata,omitempty"`
	Payload          payload         `json:"payload,omitempty"`
	PayloadNil       bool            `json:"payload_nil,omitempty"`       // it is kept and nil, as a tombstone's; that is not an empty payload
	PayloadTruncated bool            `json:"payload_truncated,omitempty"` // by --max-payload-bytes
	Unreadable       string          `json:"unreadable,omitempty"`        // why metadata, facts or history are missing
}

func contentOf(topic, coordinates, uuid, codec string, payloadBytes int, metadata map[string]string, unreadable error) contentRecord {
	r := contentRecord{
		Topic: text(topic), Coordinates: text(coordinates), UUID: text(uuid), Codec: text(codec), PayloadBytes: payloadBytes,
	}
	if unreadable != nil {
		r.Unreadable = unreadable.Error()
	}
	if len(metadata) > 0 {
		r.Metadata = make(map[string]text, len(metadata))
		for name, value := range metadata {
			if !utf8.ValidString(name) {
				name = printable(name) // a name in JSON must be text
			}
			r.Metadata[name] = text(value)
		}
	}
	return r
}

// withFacts adds what the broker said about the message.
func (r contentRecord) withFacts(f stores.Facts) contentRecord {
	if f.Key != nil {
		key := text(f.Key)
		r.Key = &key
	}
	r.NativeID = text(f.NativeID)
	if !f.Time.IsZero() {
		r.BrokerTime = f.Time.UTC().Format(time.RFC3339Nano)
	}
	return r
}

// messageRecord is a message of msg ls and msg show. Only msg show has metadata, payload and
// history.
type messageRecord struct {
	Number int64 `json:"number,omitempty"`
	consumerRecord
	idRecord
	Status      string          `json:"status"`
	Placement   string          `json:"placement,omitempty"`
	Content     string          `json:"content,omitempty"`
	Class       text            `json:"class,omitempty"`
	Cause       text            `json:"cause,omitempty"`
	Error       text            `json:"error,omitempty"`
	Attempts    int             `json:"attempts"`
	Uncounted   int             `json:"uncounted"`
	Presumed    bool            `json:"presumed,omitempty"`
	Reserved    bool            `json:"reserved,omitempty"` // by a retry worker, until due_at unless it renews that
	Redrives    int             `json:"redrives"`
	FirstAt     time.Time       `json:"first_at,omitzero"`
	LastAt      time.Time       `json:"last_at,omitzero"`
	Holder      text            `json:"holder,omitempty"` // of its lease
	DueAt       time.Time       `json:"due_at,omitzero"`
	CompletedAt time.Time       `json:"completed_at,omitzero"`
	OrderKey    text            `json:"order_key,omitempty"`
	Fingerprint string          `json:"fingerprint,omitempty"`
	TraceParent string          `json:"traceparent,omitempty"`
	History     []attemptRecord `json:"history,omitempty"`
	contentRecord
}

type attemptRecord struct {
	At    time.Time `json:"at"`
	Class text      `json:"class"`
	Error text      `json:"error,omitempty"`
}

func recordOf(m stores.Message) messageRecord {
	r := messageRecord{
		Number: m.Number, consumerRecord: consumerOf(m.Key.Consumer), idRecord: idOf(m.Key.ID), Status: m.Status.String(),
		Class: text(m.Class), Cause: text(m.Cause), Error: text(m.Error),
		Attempts: m.Attempts, Uncounted: m.Uncounted, Presumed: m.Presumed, Reserved: m.Reserved, Holder: text(m.Holder), Redrives: m.Redrives,
		FirstAt: m.FirstAt.UTC(), LastAt: m.LastAt.UTC(), DueAt: m.DueAt.UTC(), CompletedAt: m.CompletedAt.UTC(),
		OrderKey: text(m.OrderKey), Fingerprint: fingerprint(m.Fingerprint), TraceParent: m.TraceParent.String(),
		contentRecord: contentOf(m.Topic, m.Coordinates, m.UUID, m.Codec, m.PayloadBytes, m.Metadata, m.Unreadable).withFacts(m.Facts),
	}
	if m.Number != 0 {
		r.Content = m.Content.String()
	}
	if m.Status == stores.StatusPending {
		r.Placement = m.Placement.String()
	}
	for _, a := range m.History {
		r.History = append(r.History, attemptRecord{a.At.UTC(), text(a.Class), text(a.Error)})
	}
	return r
}

// fingerprint returns "sha256:…", "hmac-sha256/<key id>:…", or "sha512-256:…" for a message with
// headers that count.
func fingerprint(f stores.Fingerprint) string {
	switch f.Algorithm {
	case stores.FingerprintOff:
		return ""
	case stores.FingerprintSHA256:
		return fmt.Sprintf("sha256:%x", f.Digest)
	case stores.FingerprintHeaders:
		return fmt.Sprintf("sha512-256:%x", f.Digest)
	case stores.FingerprintHMAC:
		return fmt.Sprintf("hmac-sha256/%d:%x", f.KeyID, f.Digest)
	}
	return fmt.Sprintf("%d/%d:%x", f.Algorithm, f.KeyID, f.Digest)
}
