package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

var _ stores.OutboxInspector = (*Store)(nil)

var outputKinds = map[stores.OutputState]byte{
	stores.OutputPending: kindOutput, stores.OutputFailed: kindFailed, stores.OutputPublished: kindPublished,
}

// bareOutput are the attributes of outputs in lists: all but the content.
var bareOutput = []string{"pk", "sk", "num", "mid", "dst", "top", "typ", "cdc", "tp", "siz", "att", "err", "end", "src"}

// bareNames returns the projection of bareOutput. It uses names because some attributes are
// reserved words.
func bareNames() (expression string, names map[string]string) {
	names = make(map[string]string, len(bareOutput))
	for _, name := range bareOutput {
		names["#"+name] = name
	}
	return "#" + strings.Join(bareOutput, ", #"), names
}

func outputRow(state stores.OutputState, i item) stores.OutputRow {
	o := outputOf(i)
	return stores.OutputRow{
		Output: o.Output, State: state, Number: o.Number, CopyOf: integer(i["src"]), Attempts: o.Attempts, Error: text(i["err"]), Bytes: int(integer(i["siz"])),
		CreatedAt: o.CreatedAt, EndedAt: instant(integer(i["end"])), Unreadable: o.Err,
	}
}

// since returns when an output entered its state.
func since(o stores.OutputRow) time.Time {
	if o.State == stores.OutputPending {
		return o.CreatedAt
	}
	return o.EndedAt
}

// matchingOutputs yields the outputs that match a filter, without their content.
func (s *Store) matchingOutputs(ctx context.Context, f stores.OutputFilter, in span, yield func(stores.OutputRow) bool) error {
	kind, ok := outputKinds[f.State]
	if !ok {
		return fmt.Errorf("dynamodb: %q is no state of outputs: use %q, %q or %q", f.State, stores.OutputPending, stores.OutputFailed, stores.OutputPublished)
	}
	if len(f.Numbers) > 0 {
		in.above = max(in.above, slices.Min(f.Numbers)-1)
		if last := slices.Max(f.Numbers); in.below == 0 || in.below > last+1 {
			in.below = last + 1
		}
	}
	var failed error
	err := s.outputsOf(ctx, outputsIn{span: in, kind: kind, bare: true}, func(i item) bool {
		o := outputRow(f.State, i)
		matches := (f.Destination == nil || *f.Destination == o.Destination) && (f.Topic == "" || f.Topic == o.Topic) && (f.Type == "" || f.Type == o.Type) &&
			(f.ErrorContains == "" || strings.Contains(o.Error, f.ErrorContains)) && (f.ID == "" || f.ID == o.ID) && f.OrderKey == nil &&
			(f.Numbers == nil || slices.Contains(f.Numbers, o.Number)) && within(f, since(o))
		if matches && f.WithoutCopies && o.CopyOf != 0 {
			var source item
			source, failed = s.find(ctx, kind, o.CopyOf)
			matches = failed == nil && (source == nil || !within(f, since(outputRow(f.State, source))))
		}
		return failed == nil && (!matches || yield(o))
	})
	return cmp.Or(err, failed)
}

func within(f stores.OutputFilter, at time.Time) bool {
	return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// Outputs implements stores.OutboxInspector.
func (s *Store) Outputs(ctx context.Context, q stores.OutputQuery) ([]stores.OutputRow, error) {
	if err := s.listing(ctx, q.Limit); err != nil {
		return nil, err
	}
	var found []stores.OutputRow
	err := s.matchingOutputs(ctx, q.OutputFilter, span{below: q.Before}, func(o stores.OutputRow) bool {
		found = append(found, o)
		return len(found) < q.Limit
	})
	return found, err
}

// Output implements stores.OutboxInspector. It reads the states in the order in which outputs pass
// them, so it finds an output that changes state meanwhile.
func (s *Store) Output(ctx context.Context, number int64) (stores.OutputRow, error) {
	if err := s.ready(ctx); err != nil {
		return stores.OutputRow{}, err
	}
	for _, state := range []stores.OutputState{stores.OutputPending, stores.OutputFailed, stores.OutputPublished} {
		i, err := s.find(ctx, outputKinds[state], number)
		if i != nil {
			i, err = s.getFrom(ctx, s.contents, keyOf(i))
		}
		if err != nil {
			return stores.OutputRow{}, err
		}
		if len(i) > 0 {
			return outputRow(state, i), nil
		}
	}
	return stores.OutputRow{}, fmt.Errorf("dynamodb: %w", stores.ErrNotFound)
}

// MatchingOutputs implements stores.OutboxInspector.
func (s *Store) MatchingOutputs(ctx context.Context, f stores.OutputFilter, limit int) (n int, highest int64, err error) {
	if err := s.listing(ctx, limit); err != nil {
		return 0, 0, err
	}
	err = s.matchingOutputs(ctx, f, span{}, func(o stores.OutputRow) bool {
		highest = max(highest, o.Number)
		n++
		return n < limit
	})
	return n, highest, err
}

// OutputCounts implements stores.OutboxInspector. Its reads are eventually consistent.
func (s *Store) OutputCounts(ctx context.Context, limit int, states ...stores.OutputState) (counts []stores.OutputCount, err error) {
	if err := s.listing(ctx, limit); err != nil {
		return nil, err
	}
	now := instant(s.clock.now())
	for _, state := range states {
		kind, ok := outputKinds[state]
		if !ok {
			return nil, fmt.Errorf("dynamodb: %q is no state of outputs", state)
		}
		n, by := 0, make(map[string]stores.OutputCount)
		err := s.outputsOf(ctx, outputsIn{span: span{ascending: true}, kind: kind, bare: true, eventual: true}, func(i item) bool {
			o := outputRow(state, i)
			c := by[o.Destination]
			by[o.Destination] = stores.OutputCount{State: state, Destination: o.Destination, N: c.N + 1, Age: max(c.Age, now.Sub(since(o)))}
			n++
			return n < limit
		})
		if err != nil {
			return nil, err
		}
		for _, destination := range slices.Sorted(maps.Keys(by)) {
			c := by[destination]
			c.More = n >= limit
			counts = append(counts, c)
		}
	}
	return counts, nil
}

// ChangeOutputs implements stores.OutboxInspector, with one transaction for each output and its
// entry in the audit.
func (s *Store) ChangeOutputs(ctx context.Context, c stores.OutputChange) (stores.Changed, error) {
	if err := s.listing(ctx, c.Limit); err != nil {
		return stores.Changed{}, err
	}
	becomes, err := sqlstore.OutputRuling(c.Verb, c.Filter.State)
	if err != nil {
		return stores.Changed{}, fmt.Errorf("dynamodb: %w", err)
	}
	var rows []stores.OutputRow
	err = s.matchingOutputs(ctx, c.Filter, after(c.After, c.UpTo), func(o stores.OutputRow) bool {
		rows = append(rows, o)
		return len(rows) < c.Limit
	})
	if err != nil {
		return stores.Changed{}, err
	}
	done := stores.Changed{Next: c.After, Done: len(rows) < c.Limit}
	for _, o := range rows {
		done.Next = o.Number
		err := s.changeOutput(ctx, c, o, becomes)
		switch {
		case errors.Is(err, stores.ErrChanged):
			done.Busy++
		case err != nil:
			return stores.Changed{}, err
		default:
			done.Changed++
		}
	}
	return done, nil
}

func (s *Store) changeOutput(ctx context.Context, c stores.OutputChange, o stores.OutputRow, becomes string) error {
	from := outputKey(outputKinds[o.State], o.Number, o.CreatedAt)
	writes := []types.TransactWriteItem{s.leaving(from)}
	if c.Verb == stores.VerbRetryOutput || c.Verb == stores.VerbReplayOutput {
		again, err := s.pendingAgain(ctx, from, c.Verb == stores.VerbReplayOutput)
		if err != nil {
			return err
		}
		writes = append(writes, types.TransactWriteItem{Put: guard{}.put(s.contents, again)})
	}
	if c.Verb == stores.VerbReplayOutput { // the output stays
		is := writes[0].Delete
		writes[0] = types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: is.TableName, Key: is.Key, ConditionExpression: is.ConditionExpression}}
	}
	return s.transact(ctx, stores.AuditEntry{
		Verb: c.Verb, Actor: c.Actor, Reason: c.Reason, MessageID: []byte(o.ID), Number: o.Number, Before: string(o.State), After: becomes,
	}, nil, writes...)
}

// pendingAgain returns an output to put back into the outbox, or a copy with a new number. An
// output that is put back gets a time one microsecond later, so that no late settlement or decision
// hits it.
func (s *Store) pendingAgain(ctx context.Context, from item, copied bool) (item, error) {
	o, err := s.getFrom(ctx, s.contents, from)
	if err == nil && len(o) == 0 {
		err = fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	if err != nil {
		return nil, err
	}
	for _, of := range []string{"att", "err", "end", "ttl", "own"} {
		delete(o, of)
	}
	number, created := integer(o["num"]), createdAt(o).Add(time.Microsecond)
	if copied {
		now := s.clock.now()
		o["src"] = num(number)
		if number, err = s.drawOutputs(ctx, now, 1); err != nil {
			return nil, err
		}
		created = instant(now)
	}
	maps.Copy(o, outputKey(kindOutput, number, created))
	o["num"] = num(number)
	return o, nil
}
