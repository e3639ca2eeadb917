package middleware

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// identify checks the message against the limits and fills in the claim.
func (v *visit) identify() {
	c, claim := &v.in.config, &v.arrival.Claim
	claim.Bound = c.HandlerTimeout + c.CommitTimeout
	if r := v.retry; r != nil {
		claim.Key.ID, claim.Fingerprint, claim.TraceParent = r.Row.Key.ID, r.Row.Fingerprint, r.Row.TraceParent
		r.arrived = v.fingerprint()
		return
	}
	if v.arrival.Unfit != nil {
		return
	}
	reason, err := v.check()
	if err == nil {
		reason, err = v.findID()
	}
	if err != nil {
		v.arrival.Unfit = &delivery.Unfit{Reason: reason, Err: err}
		return
	}
	claim.Fingerprint = v.fingerprint()
	claim.TraceParent, _ = stores.ParseTraceParent(v.was.field("traceparent"))
	claim.OrderKey = v.orderKey()
	claim.Time = storable(v.facts.Time)
}

// Every store can compare the times between these two.
var (
	firstStorable = time.UnixMicro(1)
	lastStorable  = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)
)

// storable returns the nearest time that every store can compare. A producer may have set any.
func storable(t time.Time) time.Time {
	switch {
	case t.IsZero():
		return t
	case t.Before(firstStorable):
		return firstStorable
	case t.After(lastStorable):
		return lastStorable
	}
	return t
}

// check returns the reason to quarantine a message before it is looked up, if there is one.
func (v *visit) check() (stores.Reason, error) {
	c := &v.in.config
	if n := len(v.msg.Payload); n > c.Limits.Payload {
		return stores.ReasonTooLarge, fmt.Errorf("middleware: the payload has %d bytes, Limits.Payload is %d", n, c.Limits.Payload)
	}
	if n := len(v.was.fields) / 2; n > c.Limits.Metadata {
		return stores.ReasonTooLarge, fmt.Errorf("middleware: the message has %d metadata fields, Limits.Metadata is %d", n, c.Limits.Metadata)
	}
	size := 0
	for _, part := range v.was.fields {
		size += len(part)
	}
	if size > c.Limits.MetadataBytes {
		return stores.ReasonTooLarge, fmt.Errorf("middleware: the metadata has %d bytes, Limits.MetadataBytes is %d", size, c.Limits.MetadataBytes)
	}
	return "", nil
}

// findID asks the key chain. Its links may be functions of the program.
func (v *visit) findID() (stores.Reason, error) {
	c := &v.in.config
	id, source, err := v.askChain()
	v.arrival.Claim.Key.ID, v.diary.source = id, source
	switch {
	case errors.Is(err, keys.ErrTooLong):
		return stores.ReasonKeyTooLong, err
	case err != nil:
		return stores.ReasonNoKey, fmt.Errorf("%w: looked for %s", err, c.Keys)
	}
	return "", nil
}

func (v *visit) askChain() (id []byte, source string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: a key function panicked: %s", keys.ErrNoKey, text.OfPanic(r))
		}
	}()
	return v.in.config.Keys.ID(v.msg, v.in.config.Limits.ID)
}

// orderKey asks the program's function; a panic means no order key. Long keys are kept as their
// hash, because brokers allow keys that are too long for an index.
func (v *visit) orderKey() (key []byte) {
	ask := v.in.handlers.policy(v.handler).OrderKey
	if ask == nil {
		return nil
	}
	v.in.panics.note("RetryPolicy.OrderKey", v.arrival.Claim.Key, callback.Call("it", func() error {
		key = ask(v.msg)
		return nil
	}))
	if len(key) > stores.MaxOrderKeyBytes {
		sum := sha256.Sum256(key)
		key = append([]byte("sha256:"), sum[:]...)
	}
	return key
}
