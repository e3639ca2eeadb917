// Package wire converts Watermill messages to headers and values of Kafka records and back, in the
// format of watermill-kafka's default marshaler, so that services on either read each other's
// messages. It also covers what that marshaler refuses or drops: any producer's record becomes a
// message, and no header is lost.
package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// UUIDHeader carries the UUID of a message.
const UUIDHeader = "_watermill_message_uuid"

// ErrReserved: a metadata field is named UUIDHeader, so it could not be told from the message's
// UUID.
var ErrReserved = fmt.Errorf("wire: %w: metadata field "+UUIDHeader+" is reserved for the UUID", brokers.ErrUnencodable)

// Header is a header of a record. Keys may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Headers returns a message's headers: the UUID first, then the metadata by name. Fields that
// Message made from repeated headers become repeated headers again.
func Headers(msg *message.Message) ([]Header, error) {
	if _, taken := msg.Metadata[UUIDHeader]; taken {
		return nil, ErrReserved
	}
	headers := make([]Header, 0, len(msg.Metadata)+1)
	headers = append(headers, Header{UUIDHeader, []byte(msg.UUID)})
	names := make([]string, 0, len(msg.Metadata))
	for name := range msg.Metadata {
		names = append(names, name)
	}
	slices.Sort(names)
	earlier := repeats(msg.Metadata)
	for _, name := range names {
		if base, n, ok := parseRepeated(name); ok && n < earlier[base] {
			continue // written with the field that it repeats
		}
		for n := range earlier[name] {
			headers = append(headers, Header{name, []byte(msg.Metadata[repeated(name, n)])})
		}
		headers = append(headers, Header{name, []byte(msg.Metadata[name])})
	}
	return headers, nil
}

// repeats counts the earlier values of each field, which are numbered from 0 without a gap.
func repeats(metadata message.Metadata) map[string]int {
	var counts map[string]int
	for name := range metadata {
		base, n, ok := parseRepeated(name)
		_, last := metadata[base]
		_, _, nested := parseRepeated(base)
		if !ok || n != 0 || !last || nested {
			continue
		}
		for has := true; has; _, has = metadata[repeated(base, n)] {
			n++
		}
		if counts == nil {
			counts = make(map[string]int)
		}
		counts[base] = n
	}
	return counts
}

// Message returns a record's message. A record without a UUID header, from a producer without
// Watermill, gives an empty UUID. A header becomes a metadata field, byte by byte. If it is
// repeated, the last value has its name, as with watermill-kafka, and the earlier ones are name[0],
// name[1], ….
func Message(headers []Header, payload []byte) *message.Message {
	msg := message.NewMessage("", payload)
	var next map[string]int // where to look for a free name: there may be very many
	for _, h := range headers {
		if h.Key == UUIDHeader {
			msg.UUID = string(h.Value)
			continue
		}
		if before, again := msg.Metadata[h.Key]; again {
			if next == nil {
				next = make(map[string]int)
			}
			n := next[h.Key]
			for _, taken := msg.Metadata[repeated(h.Key, n)]; taken; _, taken = msg.Metadata[repeated(h.Key, n)] {
				n++
			}
			msg.Metadata[repeated(h.Key, n)] = before
			next[h.Key] = n + 1
		}
		msg.Metadata[h.Key] = string(h.Value)
	}
	return msg
}

func repeated(name string, n int) string { return fmt.Sprintf("%s[%d]", name, n) }

func parseRepeated(name string) (base string, n int, ok bool) {
	open := strings.LastIndexByte(name, '[')
	if open < 0 || !strings.HasSuffix(name, "]") {
		return "", 0, false
	}
	n, err := strconv.Atoi(name[open+1 : len(name)-1])
	return name[:open], n, err == nil && repeated(name[:open], n) == name
}
