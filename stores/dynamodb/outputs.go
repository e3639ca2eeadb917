package dynamodb

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Outputs are items of the content table, written in the transaction of their handler. The kind in
// the key is the state. The number selects one of a few partitions, so a relay needs few queries.

const (
	outputBits  = 22         // low bits of a number; above them is the second. JSON readers keep 53 bits exactly
	outputEpoch = 1767225600 // 2026

	outputPartitions = 8 // each has 8 of the 64 buckets

	// maxOutputs bounds the bytes of all outputs of a transaction: the service takes 4 MB,
	// including the inbox item.
	maxOutputs = 4<<20 - 8<<10
	outputBase = 300 // bytes of an item without its texts
)

var (
	_ stores.Emitter       = (*attempt)(nil)
	_ stores.OutputChecker = (*Store)(nil)
)

// CheckOutputs implements stores.OutputChecker.
func (s *Store) CheckOutputs(check func(destination, topic string) error) { s.refuses.Set(check) }

// emitted is an output that gets its number at the commit.
type emitted struct {
	stores.Output // with packed content

	packed []byte
}

// outputKey returns the key of an output in a state. It includes the time, because two processes
// may draw the same number: settling one output must not delete the other.
func outputKey(kind byte, number int64, created time.Time) item {
	p := byte(outputPartition(bucketOf(number))) //nolint:gosec // it is small
	return key(kind, []byte{p}, append(number8(number), number8(created.UnixMicro())...))
}

// inState returns the key of an output in another state.
func inState(kind byte, k item) item {
	return item{"pk": bin(append([]byte{kind}, blob(k["pk"])[1:]...)), "sk": k["sk"]}
}

func bucketOf(number int64) int64 { return number % stores.OutboxBuckets }

func outputPartition(bucket int64) int64 { return bucket / (stores.OutboxBuckets / outputPartitions) }

// createdAt returns the time in an output's key.
func createdAt(i item) time.Time {
	return instant(int64(binary.BigEndian.Uint64(blob(i["sk"])[8:]))) //nolint:gosec // as it was written
}

// numberAt returns the smallest number of a time in microseconds.
func numberAt(micros int64) int64 { return max(micros/1e6-outputEpoch, 0) << outputBits }

// outputNumbers draws numbers, which contain the time and grow within a process. In each second a
// process has some of its own, in a slot. Slots come from a counter and are drawn again every
// minute, so two processes share one only if the counter went through all slots in between.
type outputNumbers struct {
	mu   sync.Mutex
	last int64
	slot int64
	ends int64 // when the next slot is drawn
}

const (
	slotBits = outputBits / 2
	slots    = 1 << (outputBits - slotBits)
	slotFor  = 60_000_000 // microseconds
)

// drawOutputs returns the first of n consecutive numbers. If too few are left in this second, they
// are of a later one.
func (s *Store) drawOutputs(ctx context.Context, now int64, n int) (int64, error) {
	o := &s.outputs
	o.mu.Lock()
	defer o.mu.Unlock()
	if now >= o.ends {
		drawn, err := s.count(ctx, "o", 1)
		if err != nil {
			return 0, err
		}
		o.slot, o.ends = drawn%slots, now+slotFor
	}
	first := max(numberAt(now), o.last>>outputBits<<outputBits) + o.slot<<slotBits
	if next := o.last + 1; first <= o.last && next>>slotBits == first>>slotBits && (o.last+int64(n))>>slotBits == first>>slotBits {
		first = next
	} else if first <= o.last {
		first += 1 << outputBits
	}
	o.last = first + int64(n) - 1
	return first, nil
}

// item returns the item of a new output.
func (o emitted) item(number int64, created time.Time) item {
	i := outputKey(kindOutput, number, created)
	i["num"], i["mid"], i["siz"], i["b"] = num(number), bin([]byte(o.ID)), num(int64(len(o.packed)-len(nothing))), bin(o.packed)
	for name, value := range map[string]string{"dst": o.Destination, "top": o.Topic, "typ": o.Type, "cdc": sqlstore.Text(o.Codec, maxWordBytes)} {
		if value != "" {
			i[name] = str(value)
		}
	}
	if trace := sqlstore.TraceBytes(&o.TraceParent); trace != nil {
		i["tp"] = bin(trace)
	}
	return i
}

// outputOf decodes an item, with its content if that was read.
func outputOf(i item) stores.PendingOutput {
	number := integer(i["num"])
	o := stores.PendingOutput{
		Output: stores.Output{
			ID: string(blob(i["mid"])), Destination: text(i["dst"]), Topic: text(i["top"]), Type: text(i["typ"]), Codec: text(i["cdc"]),
		},
		Number: number, Bucket: bucketOf(number), Attempts: int(integer(i["att"])), CreatedAt: createdAt(i),
	}
	copy(o.TraceParent[:], blob(i["tp"]))
	if packed := blob(i["b"]); packed != nil {
		content := unpack(packed)
		o.Metadata, o.Payload, o.Err = content.metadata, content.payload, content.err
	}
	return o
}

// emit adds all outputs, or none.
func (t *Tx) emit(outputs []stores.Output) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return fmt.Errorf("dynamodb: %w", stores.ErrTxClosed)
	}
	size, all := t.bytes, t.outputs
	for i := range outputs {
		o := emitted{Output: outputs[i]}
		err := o.Validate()
		if err == nil && len(o.OrderKey) > 0 {
			err = fmt.Errorf("%w: leave OrderKey out, or use another store", stores.ErrUnordered)
		}
		if err == nil {
			err = t.store.refuses.Check(o.Destination, o.Topic)
		}
		if err == nil {
			o.packed, err = pack(o.Metadata, stores.Facts{}, o.Payload)
		}
		size += len(o.packed) + len(o.ID) + len(o.Destination) + len(o.Topic) + len(o.Type) + outputBase
		switch {
		case err != nil:
		case len(o.packed) > maxPart:
			err = fmt.Errorf("%w: metadata and payload have %d bytes, and an item takes %d", stores.ErrTooLarge, len(o.packed), maxPart)
		case size > maxOutputs:
			err = fmt.Errorf("%w: a transaction takes 4 MB", stores.ErrTooLarge)
		case len(t.items)+len(all) == MaxOperations:
			err = fmt.Errorf("%w: %w, and each output is one", stores.ErrTooLarge, ErrTooMany)
		}
		if err != nil {
			return fmt.Errorf("dynamodb: output %d of %d: %w", i+1, len(outputs), err)
		}
		o.Metadata, o.Payload = nil, nil
		all = append(all, o)
	}
	t.bytes, t.outputs = size, all
	return nil
}

// operations returns all operations of a transaction: the caller's, and the writes of its outputs,
// which get their numbers here.
func (s *Store) operations(ctx context.Context, items []types.TransactWriteItem, outputs []emitted) ([]types.TransactWriteItem, error) {
	if len(outputs) == 0 {
		return items, nil
	}
	now := s.clock.now()
	number, err := s.drawOutputs(ctx, now, len(outputs))
	if err != nil {
		return nil, err
	}
	for i, o := range outputs {
		items = append(items, types.TransactWriteItem{Put: guard{}.put(s.contents, o.item(number+int64(i), instant(now)))})
	}
	return items, nil
}

// Emit implements stores.Emitter.
func (a *attempt) Emit(outputs []stores.Output) error { return a.tx.emit(outputs) }

// NewPublisher returns a publisher into one transaction, of a handler or of [Store.Transact]. The
// relay of package middleware/outbox publishes its messages if and only if the transaction commits.
//
// Messages without a UUID get one. Publish refuses messages with errors that wrap
// stores.ErrInvalidOutput, stores.ErrTooLarge or stores.ErrUnordered; the transaction can go on.
func NewPublisher(tx *Tx, c stores.PublisherConfig) message.Publisher {
	return producer.New(string(pkg), tx, c, func(_ context.Context, tx *Tx, outputs []stores.Output, _ bool) error { return tx.emit(outputs) })
}

// Transact runs f, and if it returns nil commits in one request what f added to the transaction and
// published with [NewPublisher]. It is for programs that publish outside handlers. After an error
// that wraps stores.ErrUnavailable the transaction may be committed; with an output in it, this is
// known in most cases.
func (s *Store) Transact(ctx context.Context, f func(tx *Tx) error) error {
	tx := &Tx{store: s}
	err := f(tx)
	refused, items, outputs := tx.end()
	if err == nil {
		err = refused
	}
	if err == nil {
		err = s.ready(ctx)
	}
	if err != nil {
		return err
	}
	all, err := s.operations(ctx, items, outputs)
	if err != nil || len(all) == 0 {
		return err
	}
	w := write{others: all}
	if last := len(all) - 1; len(outputs) > 0 {
		w.put, w.others = all[last].Put, all[:last]
		w.put.Item["own"] = bin(newOwn())
	}
	end, err := s.send(ctx, w)
	if condition := conditionOf(err, w.others); condition != nil && end == failed {
		return fmt.Errorf("%w: %w", condition, err)
	}
	return s.outcome(ctx, end, err)
}
