package middleware

import (
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// nameHeader is where the marshalers of Watermill's cqrs put the name of an event or
// command, by which its processors choose the handler.
const nameHeader = "name"

// fingerprint is that of the message as it is now, by today's configuration. A message
// whose name is empty and one that has none say the same, to cqrs as well.
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
