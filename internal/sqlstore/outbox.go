package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

const (
	insertOutput = `INSERT INTO {schema.}{prefix}outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id, order_key, traceparent, metadata, payload)
VALUES `
	outputValues = `({now}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	// OutputValues is how many values an output's row has.
	OutputValues = 11
)

// How many rows one INSERT has. There are few sizes, so that there are few texts.
var insertSizes = []int{256, 16, 1}

const maxInsertBytes = 1 << 20

// CheckOutputs implements stores.OutputChecker.
func (s Store) CheckOutputs(check func(destination, topic string) error) { s.t.refuses.Set(check) }

// OutputCheck is the check that a store was given; see stores.OutputChecker.
type OutputCheck struct {
	asked atomic.Pointer[func(destination, topic string) error]
}

// Set implements stores.OutputChecker's CheckOutputs.
func (c *OutputCheck) Set(check func(destination, topic string) error) { c.asked.Store(&check) }

// Check returns why outputs for a destination and topic are refused, or nil.
func (c *OutputCheck) Check(destination, topic string) error {
	check := c.asked.Load()
	if check == nil || *check == nil {
		return nil
	}
	if err := (*check)(destination, topic); err != nil {
		return fmt.Errorf("%w: %w", stores.ErrInvalidOutput, err)
	}
	return nil
}

// Emit writes outputs in a transaction, in their order, after taking the locks of their order keys.
// It draws their numbers, so call it as late as possible. locked says that other writers of the
// order keys wait for this transaction anyway.
func (t *Tables) Emit(ctx context.Context, tx Sender, outputs []stores.Output, locked bool) error {
	switch {
	case t.Closed():
		return stores.ErrClosed
	case t.Dialect() == nil: // waiting for another connection, while the caller holds one, could deadlock
		return t.Explain(ctx, mistakef("the store knows nothing of its tables yet: call Validate once, when the program starts"))
	}
	outputs, rows := slices.Clone(outputs), make([]output, len(outputs))
	for i := range outputs {
		o := &outputs[i]
		o.OrderKey = NonEmpty(o.OrderKey)
		err := o.Validate()
		if err == nil && o.OrderKey != nil && t.Dialect().Unordered.Load() {
			err = stores.ErrUnordered
		}
		if err == nil {
			err = t.refuses.Check(o.Destination, o.Topic)
		}
		if err == nil {
			var encoded Encoded
			encoded, err = t.encode(o.Metadata, stores.Facts{}, len(o.ID), len(o.OrderKey), len(o.Topic), len(o.Payload))
			rows[i] = output{o, encoded.Metadata}
		}
		if err != nil {
			return t.Explain(ctx, fmt.Errorf("output %d of %d: %w", i+1, len(outputs), err))
		}
	}
	if !locked {
		if err := t.lockOrderKeys(ctx, tx, outputs); err != nil {
			return t.Explain(ctx, err)
		}
	}
	for len(rows) > 0 {
		n := t.fitting(rows)
		if _, err := tx.Send(ctx, t.insertOutputs(rows[:n])); err != nil {
			return t.Explain(ctx, err)
		}
		rows = rows[n:]
	}
	return nil
}

// output is an output with its metadata in the stored form.
type output struct {
	*stores.Output
	encoded []byte
}

func (o output) bytes() int { return len(o.encoded) + len(o.Payload) }

// fitting returns how many rows the next INSERT has. If the database is in the process, large
// statements save no round trip, and the driver searches each value among all of them.
func (t *Tables) fitting(rows []output) int {
	sizes := insertSizes
	if t.Dialect().Alone {
		sizes = sizes[1:]
	}
	for _, n := range sizes {
		bytes := 0
		for _, o := range rows[:min(n, len(rows))] {
			bytes += o.bytes()
		}
		if n <= len(rows) && bytes <= maxInsertBytes {
			return n
		}
	}
	return 1
}

func (t *Tables) insertOutputs(rows []output) Statement {
	s := Statement{Text: t.fixed(insertOutput + outputValues + strings.Repeat(", "+outputValues, len(rows)-1))}
	for _, o := range rows {
		s.Args = append(s.Args, int64(o.bytes()), bucketOf(o.Output), o.Destination, o.Topic, o.Type, Text(o.Codec, maxWordBytes),
			[]byte(o.ID), o.OrderKey, TraceBytes(&o.TraceParent), o.encoded, o.Payload)
	}
	return s
}

// bucketOf is the same in all versions of the program: an order key that moved to another bucket
// would have two owners.
func bucketOf(o *stores.Output) int64 {
	h := fnv.New32a()
	if o.OrderKey != nil {
		_, _ = h.Write(o.OrderKey)
	} else {
		_, _ = h.Write([]byte(o.ID))
	}
	return int64(h.Sum32() % stores.OutboxBuckets)
}

// lockOrderKeys makes other writers of the keys wait until tx has ended. Keys that share a lock
// number only wait for each other.
func (t *Tables) lockOrderKeys(ctx context.Context, tx Sender, outputs []stores.Output) error {
	d := t.Dialect()
	if d.LockOrderKey == "" {
		return nil
	}
	var numbers []int64
	for _, o := range outputs {
		if o.OrderKey == nil {
			continue
		}
		hash := sha256.Sum256(append([]byte(d.Names.Table("outbox")+"\x00"), o.OrderKey...))
		number := int64(binary.BigEndian.Uint64(hash[:])) //nolint:gosec // any number is fine
		if d.OrderSlots > 0 {
			number = int64(binary.BigEndian.Uint64(hash[:]) % uint64(d.OrderSlots)) //nolint:gosec // it is small
		}
		numbers = append(numbers, number)
	}
	slices.Sort(numbers) // sorted, so that two callers do not deadlock
	for _, number := range slices.Compact(numbers) {
		s := Statement{Text: t.fixed(d.LockOrderKey), Args: []any{number}, Read: func(rows Rows) error {
			for rows.Next() { // reading the row locks it
			}
			return rows.Err()
		}}
		if _, err := tx.Send(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
