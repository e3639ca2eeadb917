package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// operated is an outbox with outputs in all states, and its operator's view. The numbers are
// known by the ids.
type operated struct {
	*bench
	store   stores.Store
	outbox  stores.Outbox
	inspect stores.OutboxInspector
	numbers map[string]int64
}

// openOperated makes an outbox in which a/k is a dead letter that blocks b/k, c is one that
// blocks nothing, d and e/l are published, and f waits.
func (b *bench) openOperated() *operated {
	b.tb.Helper()
	store, outbox := b.openOutbox()
	inspect, ok := store.(stores.OutboxInspector)
	if !ok {
		b.tb.Fatalf("a %T is no stores.OutboxInspector", store)
	}
	o := &operated{bench: b, store: store, outbox: outbox, inspect: inspect, numbers: make(map[string]int64)}
	b.say(store, stores.PublisherConfig{Destination: "one", Type: func(stores.Output) string { return "Placed" }}, "a/k", "b/k", "c")
	b.say(store, stores.PublisherConfig{Destination: "two"}, "d", "e/l", "f")
	for _, p := range b.waiting(outbox, nil, "a/k", "b/k", "c", "d", "e/l", "f") {
		o.numbers[p.ID] = p.Number
	}
	b.settle(outbox, stores.Settlement{Published: []int64{o.numbers["d"], o.numbers["e/l"]}, Keep: true})
	b.settle(outbox, stores.Settlement{Refused: []stores.RefusedOutput{
		{Number: o.numbers["a/k"], Attempts: 3, Error: "refused 100%", Failed: true, Blocks: true},
		{Number: o.numbers["c"], Attempts: 1, Error: "too large", Failed: true},
	}})
	b.waiting(outbox, nil, b.keys.unblocked("b/k", "f")...)
	return o
}

func (o *operated) selects(name string, f stores.OutputFilter, want ...string) {
	o.tb.Helper()
	var highest int64
	if len(want) > 0 {
		highest = o.numbers[want[0]]
	}
	o.selectsUpTo(highest, name, f, want...)
}

// selectsUpTo is selects where the first one has another number than its original.
func (o *operated) selectsUpTo(last int64, name string, f stores.OutputFilter, want ...string) {
	o.tb.Helper()
	rows, err := o.inspect.Outputs(o.ctx, stores.OutputQuery{OutputFilter: f, Limit: 100})
	if err != nil {
		o.tb.Fatalf("%s: Outputs: %v", name, err)
	}
	ids := []string{}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	if !slices.Equal(ids, append([]string{}, want...)) {
		o.tb.Errorf("%s: %q, want %q", name, ids, want)
	}
	n, highest, err := o.inspect.MatchingOutputs(o.ctx, f, 100)
	if err != nil || n != len(want) || highest != last {
		o.tb.Errorf("%s: MatchingOutputs: %d, %d, %v", name, n, highest, err)
	}
}

func (b *bench) outboxOperatorsRead() {
	o := b.openOperated()
	one, empty := "one", ""
	for name, q := range map[string]struct {
		f    stores.OutputFilter
		want []string
	}{
		"pending":               {stores.OutputFilter{State: stores.OutputPending}, []string{"f", "b/k"}},
		"failed":                {stores.OutputFilter{State: stores.OutputFailed}, []string{"c", "a/k"}},
		"published":             {stores.OutputFilter{State: stores.OutputPublished}, []string{"e/l", "d"}},
		"of a destination":      {stores.OutputFilter{State: stores.OutputPending, Destination: &one}, []string{"b/k"}},
		"of the empty one":      {stores.OutputFilter{State: stores.OutputPending, Destination: &empty}, nil},
		"of a topic":            {stores.OutputFilter{State: stores.OutputFailed, Topic: topic}, []string{"c", "a/k"}},
		"of another topic":      {stores.OutputFilter{State: stores.OutputFailed, Topic: "t\x00"}, nil},
		"of a type":             {stores.OutputFilter{State: stores.OutputFailed, Type: "Placed"}, []string{"c", "a/k"}},
		"with an error":         {stores.OutputFilter{State: stores.OutputFailed, ErrorContains: "100%"}, []string{"a/k"}},
		"with an id":            {stores.OutputFilter{State: stores.OutputPublished, ID: "d"}, []string{"d"}},
		"by numbers":            {stores.OutputFilter{State: stores.OutputFailed, Numbers: []int64{o.numbers["c"], o.numbers["d"]}}, []string{"c"}},
		"since an hour ago":     {stores.OutputFilter{State: stores.OutputPublished, Since: time.Now().Add(-time.Hour)}, []string{"e/l", "d"}},
		"until an hour ago":     {stores.OutputFilter{State: stores.OutputFailed, Until: time.Now().Add(-time.Hour)}, nil},
		"pending for an hour":   {stores.OutputFilter{State: stores.OutputPending, Until: time.Now().Add(-time.Hour)}, nil},
		"pending since an hour": {stores.OutputFilter{State: stores.OutputPending, Since: time.Now().Add(-time.Hour)}, []string{"f", "b/k"}},
	} {
		o.selects(name, q.f, q.want...)
	}
	ofKey := []string{"e/l"}
	if b.keys.none {
		ofKey = nil
	}
	o.selects("of an order key", stores.OutputFilter{State: stores.OutputPublished, OrderKey: []byte("l")}, ofKey...)
	if _, err := o.inspect.Outputs(b.ctx, stores.OutputQuery{Limit: 1}); err == nil {
		b.tb.Error("no state is taken")
	}
	page, err := o.inspect.Outputs(b.ctx, stores.OutputQuery{OutputFilter: stores.OutputFilter{State: stores.OutputFailed}, Before: o.numbers["c"], Limit: 1})
	if err != nil || len(page) != 1 || page[0].ID != "a/k" {
		b.tb.Errorf("the second page: %+v, %v", page, err)
	}
	row, err := o.inspect.Output(b.ctx, o.numbers["a/k"])
	if err != nil || row.State != stores.OutputFailed || row.Attempts != 3 || row.Error != "refused 100%" || row.Blocks == b.keys.none || row.Metadata["order"] != "k" ||
		string(row.Payload) != "content of a/k" || string(row.OrderKey) != string(b.keys.of("k")) || row.Type != "Placed" || row.Destination != "one" || row.EndedAt.IsZero() {
		b.tb.Errorf("a dead letter: %+v, %v", row, err)
	}
	if row, err = o.inspect.Output(b.ctx, o.numbers["f"]); err != nil || row.State != stores.OutputPending || !row.EndedAt.IsZero() || time.Since(row.CreatedAt) > time.Hour {
		b.tb.Errorf("one that waits: %+v, %v", row, err)
	}
	if _, err = o.inspect.Output(b.ctx, 1<<40); !errors.Is(err, stores.ErrNotFound) {
		b.tb.Errorf("none: %v", err)
	}
	counts, err := o.inspect.OutputCounts(b.ctx, 100, stores.OutputPending, stores.OutputFailed, stores.OutputPublished)
	var got []string
	for _, c := range counts {
		got = append(got, fmt.Sprintf("%s %s %d", c.State, c.Destination, c.N))
		if c.More || c.Age > time.Hour {
			b.tb.Errorf("%+v", c)
		}
	}
	if err != nil || !slices.Equal(got, []string{"pending one 1", "pending two 1", "failed one 2", "published two 2"}) {
		b.tb.Errorf("OutputCounts: %q, %v", got, err)
	}
	if counts, err = o.inspect.OutputCounts(b.ctx, 1, stores.OutputFailed); err != nil || len(counts) != 1 || counts[0].N != 1 || !counts[0].More {
		b.tb.Errorf("OutputCounts of one: %+v, %v", counts, err)
	}
}

// change carries out a decision in batches of one, and returns how many it has changed.
func (o *operated) change(verb stores.Verb, f stores.OutputFilter) (changed int) {
	o.tb.Helper()
	_, highest, err := o.inspect.MatchingOutputs(o.ctx, f, 100)
	if err != nil {
		o.tb.Fatal(err)
	}
	c := stores.OutputChange{Verb: verb, Filter: f, Actor: "grace", Reason: "fixed", UpTo: highest, Limit: 1}
	for range 10 {
		done, err := o.inspect.ChangeOutputs(o.ctx, c)
		if err != nil {
			o.tb.Fatalf("%s: %v", verb, err)
		}
		changed += done.Changed
		if done.Done {
			return changed
		}
		c.After = done.Next
	}
	o.tb.Errorf("%s does not end", verb)
	return changed
}

func (b *bench) outboxOperatorsChange() {
	o := b.openOperated()
	failed := stores.OutputFilter{State: stores.OutputFailed}
	if n := o.change(stores.VerbRetryOutput, stores.OutputFilter{State: stores.OutputFailed, ErrorContains: "refused"}); n != 1 {
		b.tb.Errorf("retry has changed %d", n)
	}
	got := b.waiting(o.outbox, nil, "a/k", "b/k", "f") // in its turn
	if len(got) == 3 && (got[0].Attempts != 0 || got[0].Number != o.numbers["a/k"] || string(got[0].Payload) != "content of a/k") {
		b.tb.Errorf("a retried output: %+v", got[0])
	}
	if n := o.change(stores.VerbDiscardOutput, failed) + o.change(stores.VerbDiscardOutput, stores.OutputFilter{State: stores.OutputPending, ID: "f"}); n != 2 {
		b.tb.Errorf("discard has changed %d", n)
	}
	o.selects("failed", failed)
	published := stores.OutputFilter{State: stores.OutputPublished, Since: time.Now().Add(-time.Hour)}
	if n := o.change(stores.VerbReplayOutput, published); n != 2 {
		b.tb.Errorf("replay has changed %d", n)
	}
	got = b.waiting(o.outbox, nil, "a/k", "b/k", "d", "e/l")
	if len(got) == 4 && (got[2].Number <= o.numbers["f"] || got[2].Destination != "two" || string(got[3].OrderKey) != string(b.keys.of("l")) || got[3].Metadata["order"] != "l") {
		b.tb.Errorf("replayed outputs: %+v", got[2:])
	}
	o.selects("published", published, "e/l", "d")

	entries, err := o.store.(stores.Inspector).Audit(b.ctx, 0, 100)
	var audit []string
	for _, e := range entries {
		audit = append(audit, fmt.Sprintf("%s %s %s %s %s %d", e.Verb, e.MessageID, e.Before, e.After, e.Actor, e.Number))
	}
	line := func(verb stores.Verb, id, before, after string) string {
		return fmt.Sprintf("%s %s %s %s grace %d", verb, id, before, after, o.numbers[id])
	}
	want := []string{
		line(stores.VerbReplayOutput, "e/l", "published", "pending"), line(stores.VerbReplayOutput, "d", "published", "pending"),
		line(stores.VerbDiscardOutput, "f", "pending", "discarded"), line(stores.VerbDiscardOutput, "c", "failed", "discarded"),
		line(stores.VerbRetryOutput, "a/k", "failed", "pending"),
	}
	if err != nil || !slices.Equal(audit, want) {
		b.tb.Errorf("the audit is %q, %v, want %q", audit, err, want)
	}
	for _, wrong := range []stores.OutputChange{
		{Verb: stores.VerbRetryOutput, Filter: stores.OutputFilter{State: stores.OutputPending}, Limit: 1},
		{Verb: stores.VerbDiscardOutput, Filter: stores.OutputFilter{State: stores.OutputPublished}, Limit: 1},
		{Verb: stores.VerbReplayOutput, Filter: failed, Limit: 1},
		{Verb: stores.VerbRetry, Filter: failed, Limit: 1},
	} {
		if _, err := o.inspect.ChangeOutputs(b.ctx, wrong); err == nil {
			b.tb.Errorf("%s of what is %s is taken", wrong.Verb, wrong.Filter.State)
		}
	}
	if len(got) == 4 {
		b.replayed(o, got[2:], published)
	}
}

// replayed publishes copies. They have their sources in every state, and are left out beside them.
func (b *bench) replayed(o *operated, copies []stores.PendingOutput, published stores.OutputFilter) {
	b.settle(o.outbox, stores.Settlement{Published: []int64{copies[0].Number}, Keep: true})
	b.settle(o.outbox, stores.Settlement{Refused: []stores.RefusedOutput{{Number: copies[1].Number, Attempts: 1, Error: "no", Failed: true}}})
	for state, number := range map[stores.OutputState]int64{stores.OutputPublished: copies[0].Number, stores.OutputFailed: copies[1].Number} {
		row, err := o.inspect.Output(b.ctx, number)
		if err != nil || row.State != state || row.CopyOf != o.numbers[row.ID] {
			b.tb.Errorf("a copy: %+v, %v, want that of %d", row, err, o.numbers[row.ID])
		}
	}
	if row, err := o.inspect.Output(b.ctx, o.numbers["d"]); err != nil || row.CopyOf != 0 {
		b.tb.Errorf("an original: %+v, %v", row, err)
	}
	o.selectsUpTo(copies[0].Number, "copies and their sources", published, "d", "e/l", "d")
	once := published
	once.WithoutCopies = true
	o.selects("sources", once, "e/l", "d")
	o.selectsUpTo(copies[1].Number, "a failed copy of a published source", stores.OutputFilter{State: stores.OutputFailed, WithoutCopies: true}, "e/l")
	if row, err := o.inspect.Output(b.ctx, copies[0].Number); err == nil {
		once.Since = row.EndedAt
		o.selectsUpTo(copies[0].Number, "a copy whose source was published before", once, "d")
		once.Since, once.Until = time.Time{}, row.EndedAt
		o.selects("sources published before a copy", once, "e/l", "d")
	}
	if n := o.change(stores.VerbDiscardOutput, stores.OutputFilter{State: stores.OutputFailed}); n != 1 {
		b.tb.Errorf("discard has changed %d copies", n)
	}
	again, err := o.inspect.ChangeOutputs(b.ctx, stores.OutputChange{Verb: stores.VerbReplayOutput, Filter: stores.OutputFilter{State: stores.OutputPublished, Numbers: []int64{copies[0].Number}}, Limit: 10})
	if err != nil || again.Changed != 1 {
		b.tb.Errorf("replay of a copy: %+v, %v", again, err)
	}
	waiting := b.waiting(o.outbox, nil, "a/k", "b/k", "d")
	if len(waiting) < 3 {
		return
	}
	if row, err := o.inspect.Output(b.ctx, waiting[2].Number); err != nil || row.CopyOf != copies[0].Number {
		b.tb.Errorf("a copy of a copy: %+v, %v", row, err)
	}
}

// outboxOperatorsAtOnce: of several operators one changes an output.
func (b *bench) outboxOperatorsAtOnce() {
	o := b.openOperated()
	var (
		mu      sync.Mutex
		changed int
		busy    sync.WaitGroup
	)
	for range 4 {
		busy.Go(func() {
			done, err := o.inspect.ChangeOutputs(b.ctx, stores.OutputChange{Verb: stores.VerbRetryOutput, Filter: stores.OutputFilter{State: stores.OutputFailed}, Limit: 100})
			mu.Lock()
			defer mu.Unlock()
			changed += done.Changed
			if err != nil {
				b.tb.Error(err)
			}
		})
	}
	busy.Wait()
	if changed != 2 {
		b.tb.Errorf("%d outputs were changed, want 2", changed)
	}
	b.waiting(o.outbox, nil, "a/k", "b/k", "c", "f")
	if n := b.rowsOf("audit"); n != 2 {
		b.tb.Errorf("the audit has %d entries, want 2", n)
	}
}
