package telemetry

import (
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// carrier gives a propagator access to a message's metadata.
type carrier message.Metadata

// The standards require implementations to carry 512 characters of tracestate and 8192 bytes of
// baggage. The bounds allow somewhat more.
const (
	longestHeader = 8192
	longestState  = 2048
)

// Get implements propagation.TextMapCarrier. Producers differ in the case of names. Longer
// values than the bounds are ignored.
func (c carrier) Get(key string) string {
	value, ok := c[key]
	if !ok {
		for name, v := range c {
			if len(name) == len(key) && strings.EqualFold(name, key) {
				value = v
				break
			}
		}
	}
	if len(value) > longestHeader || key == "tracestate" && len(value) > longestState {
		return ""
	}
	return value
}

// Set implements propagation.TextMapCarrier. A value under another case of the name is
// deleted, because some consumers would read it.
func (c carrier) Set(key, value string) {
	for name := range c {
		if name != key && len(name) == len(key) && strings.EqualFold(name, key) {
			delete(c, name)
		}
	}
	c[key] = value
}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for name := range c {
		keys = append(keys, name)
	}
	return keys
}
