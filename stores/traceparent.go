package stores

import (
	"encoding/hex"
	"fmt"
)

// TraceParent is a W3C trace context (version 00) in binary: trace id, span id,
// flags. The zero value means that a message carried none.
// Source: https://www.w3.org/TR/trace-context/#traceparent-header.
type TraceParent [16 + 8 + 1]byte

// ParseTraceParent reads the header's text form. Anything but a valid version 00
// value with non-zero ids gives the zero value and false.
func ParseTraceParent(s string) (TraceParent, bool) {
	var t TraceParent
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return TraceParent{}, false
	}
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'F' { // the standard allows lower case only
			return TraceParent{}, false
		}
	}
	for _, part := range []struct {
		dst []byte
		src string
	}{{t[:16], s[3:35]}, {t[16:24], s[36:52]}, {t[24:], s[53:]}} {
		if _, err := hex.Decode(part.dst, []byte(part.src)); err != nil {
			return TraceParent{}, false
		}
	}
	if [16]byte(t[:16]) == [16]byte{} || [8]byte(t[16:24]) == [8]byte{} {
		return TraceParent{}, false
	}
	return t, true
}

// IsZero reports whether there is no trace context.
func (t TraceParent) IsZero() bool { return t == TraceParent{} }

// String returns the header's text form, "" for the zero value.
func (t TraceParent) String() string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("00-%x-%x-%x", t[:16], t[16:24], t[24:])
}
