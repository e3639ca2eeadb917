package telemetry

import (
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// carrier is the metadata of a message as a propagator sees it.
type carrier message.Metadata

// Headers of other producers are bounded by what their standards want carried: 512
// characters of tracestate, 8192 bytes of baggage, with room for those that carry more.
const (
	longestHeader = 8192
	longestState  = 2048
)

// Get implements propagation.TextMapCarrier. Producers differ in the case of names; what
// is longer than anybody has to carry is not there.
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

// Set implements propagation.TextMapCarrier. What the message had under another case of
// the name would be read by some, so it goes.
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
