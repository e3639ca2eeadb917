// Package keys finds the id of a message, which is the same for all of its deliveries.
//
// A [Chain] has one or more links. The inbox's default chain is the single link [UUID].
// More links are opt-in, because a message that is redelivered with another id would run
// twice:
//
//	keys.First(keys.Metadata("event_id"))                     // only this header
//	keys.First(keys.Native()).Then(keys.Metadata("event_id")) // the first that is there
//	keys.First(keys.UUID()).Scoped(keys.Tenant("tenant"))     // unique per tenant only
//
// Within one chain, ids from different links never collide: an id begins with its kind
// ("u:", "h:", "n:", …), and the second and later links of one kind put their name before
// it ("h10:request_id|h:42"). A canonical UUID takes 16 bytes instead of 36; [Format] shows
// it in its usual form.
package keys

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

var (
	// ErrNoKey: no link of the chain found an id in the message.
	ErrNoKey = errors.New("keys: the message has no id")
	// ErrTooLong: the id that was found is longer than allowed.
	ErrTooLong = errors.New("keys: the message id is too long")
)

// Chain finds ids. The zero value is not usable: begin with [First]. A Chain is
// immutable and safe for concurrent use.
type Chain struct {
	links  []Link
	scopes []Scope
}

// First returns a chain of one link.
func First(l Link) Chain { return Chain{links: []Link{l}} }

// Then returns the chain with one more link, which is used if the links before it find no id.
//
// Use it only if each message always matches the same link: a header that is lost on the way (in
// a dead-letter queue, or when a message is published again by hand) changes the id, and the
// message runs again.
//
// Appending a link does not change the ids of the links before it. The second and later links of
// a kind put their names into their ids, where they count toward stores.MaxIDBytes. So moving or
// removing a link before another of its kind may change the ids of the later link, and its
// messages may run again.
func (c Chain) Then(l Link) Chain {
	l.prefix = ""
	segment := string(appendSegment(nil, l.kind, l.label))
	// Two links of a kind may even have one label: the later one repeats it.
	for slices.ContainsFunc(c.links, func(e Link) bool { return e.kind == l.kind && e.prefix == l.prefix }) {
		l.prefix += segment
	}
	c.links = append(slices.Clip(c.links), l)
	return c
}

// Scoped returns the chain with ids that are unique only within the scopes, for
// producers whose ids repeat among topics, event types or tenants.
func (c Chain) Scoped(scopes ...Scope) Chain {
	c.scopes = append(slices.Clip(c.scopes), scopes...)
	return c
}

// IsZero reports whether the chain has no link.
func (c Chain) IsZero() bool { return len(c.links) == 0 }

// NeedsFingerprint reports whether an id of this chain may later be used for another message.
// Only the fingerprint notices that.
func (c Chain) NeedsFingerprint() bool {
	for _, link := range c.links {
		if link.reused {
			return true
		}
	}
	return false
}

// String describes the chain for logs.
func (c Chain) String() string {
	names := make([]string, 0, len(c.links))
	for _, link := range c.links {
		names = append(names, link.name)
	}
	s := strings.Join(names, ", then ")
	for _, scope := range c.scopes {
		s += " per " + scope.name
	}
	return s
}

// ID returns the id of the message and the name of the link that found it. limit is the
// largest raw id in bytes. The error is ErrNoKey, or wraps ErrTooLong; the id is then
// returned in full, with its scopes, to tell the message from others.
func (c Chain) ID(msg *message.Message, limit int) (id []byte, source string, err error) {
	for _, link := range c.links {
		kind, value := link.find(msg)
		if value == "" {
			continue
		}
		id = c.encode(msg, link, kind, value)
		if len(value) > limit {
			return id, link.name, fmt.Errorf("%w: %d bytes from %s, at most %d are allowed",
				ErrTooLong, len(value), link.name, limit)
		}
		if len(id) > stores.MaxIDBytes {
			return id, link.name, fmt.Errorf("%w: %d bytes with its scopes and kind, at most %d are allowed",
				ErrTooLong, len(id), stores.MaxIDBytes)
		}
		return id, link.name, nil
	}
	return nil, "", ErrNoKey
}

// encode is injective: scopes and the name of the link are preceded by their length,
// the raw id is the rest.
func (c Chain) encode(msg *message.Message, link Link, kind byte, value string) []byte {
	id := make([]byte, 0, len(link.prefix)+2+len(value))
	for _, scope := range c.scopes {
		id = appendSegment(id, scope.kind, scope.find(msg))
	}
	id = append(id, link.prefix...)
	if short, ok := packUUID(value); ok {
		id = append(id, kind, '#')
		return append(id, short[:]...)
	}
	id = append(id, kind, ':')
	return append(id, value...)
}

// appendSegment appends what may precede the kind and the raw id. Its second byte is
// a digit, theirs is ':' or '#'.
func appendSegment(id []byte, kind byte, v string) []byte {
	id = append(id, kind)
	id = strconv.AppendInt(id, int64(len(v)), 10)
	id = append(id, ':')
	id = append(id, v...)
	return append(id, '|')
}

// packUUID packs a UUID in the text form that unpacking restores: 36 characters, lower
// case.
func packUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	at := 0
	for i := range u {
		if at == 8 || at == 13 || at == 18 || at == 23 {
			at++
		}
		high, low := digit(s[at]), digit(s[at+1])
		if high|low > 0xf {
			return u, false
		}
		u[i] = high<<4 | low
		at += 2
	}
	return u, true
}

// digit returns the value of a lower-case hexadecimal digit; above 0xf: it is none.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// Format returns a stored id as text: its scopes, the name of its link if it has one, its
// kind, and a packed UUID in its usual form. The result may contain any byte of the id;
// quote it before it reaches a terminal.
func Format(id []byte) string {
	var segments strings.Builder
	rest := string(id)
	for {
		if len(rest) < 2 || rest[1] < '0' || rest[1] > '9' {
			break
		}
		length, tail, ok := strings.Cut(rest[1:], ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n >= len(tail) || tail[n] != '|' {
			break
		}
		segments.WriteString(rest[:1] + "=" + tail[:n] + " ")
		rest = tail[n+1:]
	}
	if len(rest) == 18 && rest[1] == '#' {
		u := rest[2:]
		rest = fmt.Sprintf("%c:%x-%x-%x-%x-%x", rest[0], u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	}
	return segments.String() + rest
}
