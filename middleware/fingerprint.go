package middleware

import (
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// nameHeader is the header in which the marshalers of Watermill's cqrs put the name of an event
// or command. Its processors choose the handler by it.
const nameHeader = "name"

// fingerprint returns the fingerprint of the message as it is now, by today's configuration. An
// empty name and a missing one are equal, as they are to cqrs.
func (v *visit) fingerprint() stores.Fingerprint {
	c := &v.in.config.Fingerprint
	if c.Off {
		return stores.Fingerprint{}
	}
	var headers []stores.Header
	if name := v.was.field(nameHeader); name != "" && !slices.Contains(c.Headers, nameHeader) {
		headers = append(headers, stores.Header{Name: nameHeader, Value: name})
	}
	for _, header := range c.Headers {
		headers = append(headers, stores.Header{Name: header, Value: v.was.field(header)})
	}
	return stores.NewFingerprint(c.Key, v.was.payload, headers...)
}
