package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// outputTable is the table of outputs in one state.
type outputTable struct {
	name, at, blocks string
}

var outputTables = map[stores.OutputState]outputTable{
	stores.OutputPending:   {"outbox", "created_at", "false"},
	stores.OutputFailed:    {"outbox_failed", "failed_at", "f.blocks"},
	stores.OutputPublished: {"outbox_history", "published_at", "false"},
}

const (
	selectOutput = `SELECT f.id, {us}f.created_at{/us}, {us}f.{at}{/us}, f.attempts, f.bytes, {blocks}, coalesce(f.error, ''),
	f.destination, f.topic, f.type, f.codec, f.message_id, f.order_key, f.traceparent, coalesce(f.copy_of, 0)`
	fromOutputs = ` FROM {schema.}{prefix}{table} f WHERE `

	matchingOutputs = `SELECT count(*), coalesce(max(id), 0) FROM (SELECT f.id` + fromOutputs + `%s ORDER BY f.id DESC LIMIT ?) matching`

	countOutputs = `SELECT f.destination, count(*), {us}{now}{/us} - {us}min(f.{at}){/us} FROM (
	SELECT destination, {at} FROM {schema.}{prefix}{table} ORDER BY id LIMIT ?) f GROUP BY f.destination ORDER BY f.destination`
)

// outputText completes a statement's text for outputs in one state.
func (t *Tables) outputText(state stores.OutputState, text string) string {
	table := outputTables[state]
	return t.sql(strings.NewReplacer("{table}", table.name, "{at}", table.at, "{blocks}", table.blocks).Replace(text))
}

// outputsOf returns a filter's condition on a table of outputs, as f.
func (t *Tables) outputsOf(f stores.OutputFilter) (*Condition, error) {
	table, ok := outputTables[f.State]
	if !ok {
		return nil, mistakef("%s: %q is no state of outputs: use %q, %q or %q", t.name, f.State, stores.OutputPending, stores.OutputFailed, stores.OutputPublished)
	}
	d, w := t.Dialect(), &Condition{}
	if f.Destination != nil {
		w.And("f.destination = ?", *f.Destination)
	}
	if f.Topic != "" {
		w.And("f.topic = ?", f.Topic)
	}
	if f.Type != "" {
		w.And("f.type = ?", f.Type)
	}
	if f.ErrorContains != "" {
		w.And(d.Contains, []byte(f.ErrorContains))
	}
	if f.ID != "" {
		w.And("f.message_id = ?", []byte(f.ID))
	}
	if f.OrderKey != nil {
		w.And("f.order_key = ?", f.OrderKey)
	}
	if f.Numbers != nil {
		w.in(d, "f.id", f.Numbers)
	}
	within := func(alias string, w *Condition) {
		if !f.Since.IsZero() {
			w.And(alias+"."+table.at+" >= ?", d.Time(f.Since))
		}
		if !f.Until.IsZero() {
			w.And(alias+"."+table.at+" < ?", d.Time(f.Until))
		}
	}
	within("f", w)
	if f.WithoutCopies {
		source := &Condition{}
		source.And("s.id = f.copy_of")
		within("s", source)
		// It counts, because for EXISTS PostgreSQL would read the whole table to hash it.
		w.And("(f.copy_of IS NULL OR 0 = (SELECT count(*) FROM {schema.}{prefix}{table} s WHERE "+source.String()+"))", source.Args...)
	}
	return w, nil
}

// scanOutputRow reads the columns of selectOutput, and those after them into more.
func scanOutputRow(rows Rows, state stores.OutputState, more ...any) (o stores.OutputRow, err error) {
	var (
		created, ended int64
		id, trace      []byte
	)
	into := []any{
		&o.Number, &created, &ended, &o.Attempts, &o.Bytes, &o.Blocks, &o.Error,
		&o.Destination, &o.Topic, &o.Type, &o.Codec, &id, &o.OrderKey, &trace, &o.CopyOf,
	}
	if err := rows.Scan(append(into, more...)...); err != nil {
		return o, err
	}
	o.State, o.ID, o.CreatedAt = state, string(id), time.UnixMicro(created)
	if state != stores.OutputPending {
		o.EndedAt = time.UnixMicro(ended)
	}
	copy(o.TraceParent[:], trace)
	return o, nil
}

// Outputs implements stores.OutboxInspector.
func (s Store) Outputs(ctx context.Context, q stores.OutputQuery) (outputs []stores.OutputRow, err error) {
	err = s.t.Inspect(ctx, q.Limit, func() error {
		w, err := s.t.outputsOf(q.OutputFilter)
		if err != nil {
			return err
		}
		if q.Before > 0 {
			w.And("f.id < ?", q.Before)
		}
		text := s.t.outputText(q.State, selectOutput+fromOutputs+w.String()+" ORDER BY f.id DESC LIMIT ?")
		outputs, err = list(ctx, s.t.db, Statement{Text: text, Args: append(w.Args, q.Limit)}, func(rows Rows) (stores.OutputRow, error) {
			return scanOutputRow(rows, q.State)
		})
		return err
	})
	return outputs, err
}

// Output implements stores.OutboxInspector. It searches the tables in the order in which outputs
// move, so that it does not miss one that is moving.
func (s Store) Output(ctx context.Context, number int64) (o stores.OutputRow, err error) {
	err = s.t.Inspect(ctx, 1, func() error {
		for _, state := range []stores.OutputState{stores.OutputPending, stores.OutputFailed, stores.OutputPublished} {
			text := s.t.outputText(state, selectOutput+", f.metadata, f.payload"+fromOutputs+"f.id = ?")
			found, err := list(ctx, s.t.db, Statement{Text: text, Args: []any{number}}, func(rows Rows) (stores.OutputRow, error) {
				var metadata, payload []byte
				o, err := scanOutputRow(rows, state, &metadata, &payload)
				if err == nil {
					o.Payload = payload
					o.Metadata, o.Unreadable = DecodeMetadata(metadata)
				}
				return o, err
			})
			if err != nil {
				return err
			}
			if len(found) > 0 {
				o = found[0]
				return nil
			}
		}
		return stores.ErrNotFound
	})
	return o, err
}

// MatchingOutputs implements stores.OutboxInspector.
func (s Store) MatchingOutputs(ctx context.Context, f stores.OutputFilter, limit int) (n int, highest int64, err error) {
	err = s.t.Inspect(ctx, limit, func() error {
		w, err := s.t.outputsOf(f)
		if err != nil {
			return err
		}
		text := s.t.outputText(f.State, strings.Replace(matchingOutputs, "%s", w.String(), 1))
		_, err = First(ctx, s.t.db, Statement{Text: text, Args: append(w.Args, limit)}, &n, &highest)
		return err
	})
	return n, highest, err
}

// OutputCounts implements stores.OutboxInspector.
func (s Store) OutputCounts(ctx context.Context, limit int, states ...stores.OutputState) (counts []stores.OutputCount, err error) {
	err = s.t.Inspect(ctx, limit, func() error {
		for _, state := range states {
			if _, ok := outputTables[state]; !ok {
				return mistakef("%s: %q is no state of outputs", s.t.name, state)
			}
			all := 0
			found, err := list(ctx, s.t.db, Statement{Text: s.t.outputText(state, countOutputs), Args: []any{limit}}, func(rows Rows) (c stores.OutputCount, err error) {
				var age int64
				err = rows.Scan(&c.Destination, &c.N, &age)
				c.State, c.Age = state, max(time.Duration(age)*time.Microsecond, 0)
				all += c.N
				return c, err
			})
			if err != nil {
				return err
			}
			for i := range found {
				found[i].More = all >= limit
			}
			counts = append(counts, found...)
		}
		return nil
	})
	return counts, err
}

const (
	scanOutputs = `SELECT f.id` + fromOutputs + `%s ORDER BY f.id LIMIT ?`
	lockOutputs = `SELECT f.id` + fromOutputs + `%s ORDER BY f.id{for update}`

	auditOutputs = `INSERT INTO {schema.}{prefix}audit (at, verb, actor, reason, consumer, number, message_id, {before}, {after})
SELECT {now}, ?, ?, ?, 0, f.id, f.message_id, ?, ?` + fromOutputs + `%s ORDER BY f.id`

	outputContent = `bytes, bucket, destination, topic, type, codec, message_id, order_key, traceparent, metadata, payload`

	retryOutputs = `INSERT INTO {schema.}{prefix}outbox (` + OutputColumns + `) {own number}
SELECT ` + OutputColumns + ` FROM {schema.}{prefix}outbox_failed f WHERE %s`
	replayOutputs = `INSERT INTO {schema.}{prefix}outbox (created_at, copy_of, ` + outputContent + `)
SELECT {now}, f.id, ` + outputContent + ` FROM {schema.}{prefix}outbox_history f WHERE %s ORDER BY f.id`
	discardOutputs = `DELETE FROM {schema.}{prefix}{table} WHERE %s`
)

// outputVerb is what a decision does to outputs.
type outputVerb struct {
	from   []stores.OutputState
	after  string // the status in the audit
	insert string
	remain bool
}

var outputVerbs = map[stores.Verb]outputVerb{
	stores.VerbRetryOutput:   {from: []stores.OutputState{stores.OutputFailed}, after: "pending", insert: retryOutputs},
	stores.VerbDiscardOutput: {from: []stores.OutputState{stores.OutputFailed, stores.OutputPending}, after: "discarded"},
	stores.VerbReplayOutput:  {from: []stores.OutputState{stores.OutputPublished}, after: "pending", insert: replayOutputs, remain: true},
	stores.VerbEraseOutput:   {from: []stores.OutputState{stores.OutputFailed, stores.OutputPending, stores.OutputPublished}, after: "erased"},
}

// OutputRuling returns what a verb makes of outputs in a state, for the audit, or refuses the verb.
func OutputRuling(verb stores.Verb, state stores.OutputState) (after string, err error) {
	v, ok := outputVerbs[verb]
	if !ok || !slices.Contains(v.from, state) {
		return "", fmt.Errorf("%q is no verb for outputs that are %s", verb, state)
	}
	return v.after, nil
}

// ChangeOutputs implements stores.OutboxInspector.
func (s Store) ChangeOutputs(ctx context.Context, c stores.OutputChange) (done stores.Changed, err error) {
	t := s.t
	err = t.Inspect(ctx, c.Limit, func() error {
		w, err := t.outputsOf(c.Filter)
		if err != nil {
			return err
		}
		if _, err := OutputRuling(c.Verb, c.Filter.State); err != nil {
			return mistakef("%s: %v", t.name, err)
		}
		w.And("f.id > ?", c.After)
		if c.UpTo > 0 {
			w.And("f.id <= ?", c.UpTo)
		}
		limit := min(c.Limit, maxChange)
		numbers, err := t.outputNumbers(ctx, t.db, c.Filter.State, scanOutputs, w, limit)
		if err != nil || len(numbers) == 0 {
			done = stores.Changed{Next: c.After, Done: true}
			return err
		}
		changed := 0
		err = t.db.Write(ctx, func(tx Sender) error {
			changed, err = t.changeOutputs(ctx, tx, c, numbers)
			return err
		})
		done = stores.Changed{Changed: changed, Busy: len(numbers) - changed, Next: numbers[len(numbers)-1], Done: len(numbers) < limit}
		return err
	})
	if err != nil {
		return stores.Changed{}, err
	}
	return done, nil
}

func (t *Tables) outputNumbers(ctx context.Context, from Sender, state stores.OutputState, text string, w *Condition, limit ...any) ([]int64, error) {
	s := Statement{Text: t.outputText(state, strings.Replace(text, "%s", w.String(), 1)), Args: append(w.Args, limit...)}
	return list(ctx, from, s, func(rows Rows) (n int64, err error) {
		err = rows.Scan(&n)
		return n, err
	})
}

// changeOutputs locks the outputs that still exist, and changes them.
func (t *Tables) changeOutputs(ctx context.Context, tx Sender, c stores.OutputChange, numbers []int64) (changed int, err error) {
	v, state, w := outputVerbs[c.Verb], c.Filter.State, &Condition{}
	term, found := t.Dialect().keys("f.id", numbers)
	w.And(term, found...)
	if numbers, err = t.outputNumbers(ctx, tx, state, lockOutputs, w); err != nil || len(numbers) == 0 {
		return 0, err
	}
	audit := []any{string(c.Verb), Text(c.Actor, stores.MaxDetailBytes), Text(c.Reason, stores.MaxDetailBytes), string(state), v.after}
	steps := []struct {
		text, column string
		args         []any
	}{{auditOutputs, "f.id", audit}, {v.insert, "f.id", nil}, {discardOutputs, "id", nil}}
	for i, step := range steps {
		if step.text == "" || i == 2 && v.remain {
			continue
		}
		term, args := t.Dialect().keys(step.column, numbers)
		text := t.outputText(state, strings.Replace(step.text, "%s", term, 1))
		n, err := tx.Send(ctx, Statement{Text: text, Args: append(slices.Clip(step.args), args...)})
		if err != nil {
			return 0, err
		}
		if n != int64(len(numbers)) {
			return 0, fmt.Errorf("%d rows were changed instead of %d", n, len(numbers))
		}
	}
	return len(numbers), nil
}
