package sqlstore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"unicode/utf8"
)

// metadata is its stored form: readable where possible, and always exact.
type metadata struct {
	Text   map[string]string `json:"text,omitempty"`
	Binary map[string][]byte `json:"binary,omitempty"` // keys and values in base64
}

// EncodeMetadata returns the stored form of a message's metadata, or nil if there is none. Keys and
// values that are not valid UTF-8 are kept byte by byte.
func EncodeMetadata(m map[string]string) ([]byte, error) {
	if len(m) == 0 {
		return nil, nil
	}
	var stored metadata
	for key, value := range m {
		if utf8.ValidString(key) && utf8.ValidString(value) {
			if stored.Text == nil {
				stored.Text = make(map[string]string, len(m))
			}
			stored.Text[key] = value
			continue
		}
		if stored.Binary == nil {
			stored.Binary = make(map[string][]byte)
		}
		stored.Binary[base64.StdEncoding.EncodeToString([]byte(key))] = []byte(value)
	}
	b, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: encode metadata: %w", err)
	}
	return b, nil
}

// DecodeMetadata decodes the result of EncodeMetadata.
func DecodeMetadata(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var stored metadata
	if err := json.Unmarshal(b, &stored); err != nil {
		return nil, fmt.Errorf("sqlstore: decode metadata: %w", err)
	}
	m := make(map[string]string, len(stored.Text)+len(stored.Binary))
	maps.Copy(m, stored.Text)
	for key, value := range stored.Binary {
		name, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: decode metadata: %w", err)
		}
		m[string(name)] = string(value)
	}
	return m, nil
}
