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
func (d *delivery) fingerprint() stores.Fingerprint {
	c := &d.in.config.Fingerprint
	if c.Off {
		return stores.Fingerprint{}
	}
	var headers []stores.Header
	if name := d.metadata.Get(nameHeader); name != "" && !slices.Contains(c.Headers, nameHeader) {
		headers = append(headers, stores.Header{Name: nameHeader, Value: name})
	}
	for _, header := range c.Headers {
		headers = append(headers, stores.Header{Name: header, Value: d.metadata.Get(header)})
	}
	return stores.NewFingerprint(c.Key, d.payload, headers...)
}

// payloadChanged reports whether a handler has changed the bytes of the payload since
// this delivery began. Without fingerprints nobody can tell.
//
// The fingerprint of a parked message's row is no measure: it may be of another key, or
// of other headers, than today's.
func (d *delivery) payloadChanged() bool {
	if d.end.Runs == 0 || d.in.config.Fingerprint.Off {
		return false
	}
	arrived := d.claim.Fingerprint
	if d.retry != nil {
		arrived = d.retry.arrived
	}
	return d.fingerprint() != arrived
}
