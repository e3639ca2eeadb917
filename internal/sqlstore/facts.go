package sqlstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/millpond-go/millpond/stores"
)

// facts is the stored form of a delivery's facts: readable where possible, and always exact.
type facts struct {
	Key            *[]byte `json:"key,omitempty"` // in base64; an empty one is a key
	NativeID       string  `json:"native_id,omitempty"`
	NativeIDBinary []byte  `json:"native_id_binary,omitempty"`
	Time           *int64  `json:"time,omitempty"` // seconds since 1970, of any year
	Nanoseconds    int     `json:"nanoseconds,omitempty"`
	PublishTopic   string  `json:"publish_topic,omitempty"`
	PublishTo      string  `json:"publish_to,omitempty"`
	RanAs          []byte  `json:"ran_as,omitempty"`
	KeyWasNil      bool    `json:"key_was_nil,omitempty"`
	PayloadWasNil  bool    `json:"payload_was_nil,omitempty"`
}

// EncodeFacts returns the stored form of a message's facts, or nil if there are none.
func EncodeFacts(f stores.Facts) ([]byte, error) {
	stored := facts{PublishTopic: f.PublishTopic, PublishTo: f.PublishTo, RanAs: f.RanAs, KeyWasNil: f.KeyWasNil, PayloadWasNil: f.PayloadWasNil}
	if f.Key != nil {
		stored.Key = &f.Key
	}
	if utf8.ValidString(f.NativeID) {
		stored.NativeID = f.NativeID
	} else {
		stored.NativeIDBinary = []byte(f.NativeID)
	}
	if !f.Time.IsZero() {
		seconds := f.Time.Unix()
		stored.Time, stored.Nanoseconds = &seconds, f.Time.Nanosecond()
	}
	b, err := json.Marshal(stored)
	switch {
	case err != nil:
		return nil, fmt.Errorf("sqlstore: encode facts: %w", err)
	case string(b) == "{}":
		return nil, nil
	}
	return b, nil
}

// DecodeFacts decodes the result of EncodeFacts.
func DecodeFacts(b []byte) (stores.Facts, error) {
	if len(b) == 0 {
		return stores.Facts{}, nil
	}
	var stored facts
	if err := json.Unmarshal(b, &stored); err != nil {
		return stores.Facts{}, fmt.Errorf("sqlstore: decode facts: %w", err)
	}
	f := stores.Facts{NativeID: stored.NativeID, PublishTopic: stored.PublishTopic, PublishTo: stored.PublishTo, RanAs: stored.RanAs, KeyWasNil: stored.KeyWasNil, PayloadWasNil: stored.PayloadWasNil}
	if stored.Key != nil {
		f.Key = *stored.Key
	}
	if stored.NativeIDBinary != nil {
		f.NativeID = string(stored.NativeIDBinary)
	}
	if stored.Time != nil {
		f.Time = time.Unix(*stored.Time, int64(stored.Nanoseconds)).UTC()
	}
	return f, nil
}

// decode decodes both. Readable parts are set even after an error.
func (e Encoded) decode() (map[string]string, stores.Facts, error) {
	metadata, err := DecodeMetadata(e.Metadata)
	facts, unread := DecodeFacts(e.Facts)
	return metadata, facts, errors.Join(err, unread)
}
