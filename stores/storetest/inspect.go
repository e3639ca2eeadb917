package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func inspectChecks() []check {
	return []check{
		{name: "filters", run: filters},
		{name: "times", run: filterTimes},
		{name: "pages", run: pages},
		{name: "one message whole", run: showMessage},
		{name: "completed messages", run: findCompleted},
		{name: "causes", run: causes},
		{name: "counts", run: counts},
		{name: "consumers", run: consumers},
		{name: "consumers that are not registered", run: inspectStranger},
		{name: "schema", run: inspectSchema},
	}
}

// exhibit is a set of messages to look at.
func (b *bench) exhibit(store stores.Store) {
	b.tb.Helper()
	b.register(store, another)
	text := func(class stores.Class, text string) func(*stores.Failure) {
		return func(f *stores.Failure) { f.Class, f.Error, f.Cause = class, text, stores.CauseOf(class, text) }
	}
	on := func(topic string) func(*stores.Failure) { return func(f *stores.Failure) { f.Topic = topic } }
	b.complete(store, claimFor("completed", "completed"))
	b.fails(store, "refused 1", text(stores.ClassTransient, "connection 1 refused"))
	b.fails(store, "refused 2", text(stores.ClassTransient, "connection 2 refused"), redelivered)
	b.fails(store, "refused 3", text(stores.ClassTransient, "connection 3 refused"), settledFor)
	b.fails(store, "declined", text(stores.ClassPermanent, "100% of the card's_limit [1'0\"0]\\ \x1b[31m"), settledFor, on("payments"))
	b.fails(store, "panic", text(stores.ClassPanic, "index out of range"), on("payments"))
	b.fails(store, "id \x00\xff", text(stores.ClassTimeout, "Connection slow"), settledFor)
	b.fails(store, "discarded", text(stores.ClassTransient, "connection 4 refused"), settledFor)
	b.change(store, stores.VerbDiscard, stores.Filter{ID: []byte("discarded")}, 1)
	theirs := failureOf(claimFor("declined", "theirs"))
	theirs.Key.Consumer = another
	text(stores.ClassPermanent, "no such card")(&theirs)
	b.record(store, changed(theirs, settledFor))
}

func filters(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.exhibit(here)
	refused := stores.CauseOf(stores.ClassTransient, "connection 9 refused")
	number := func(id string) int64 { return b.failure(id).number }
	before := b.snapshot()
	for _, test := range []struct {
		name   string
		filter stores.Filter
		want   []string
	}{
		{"all", stores.Filter{}, []string{"refused 1", "refused 2", "refused 3", "declined", "panic", "id \x00\xff", "declined"}},
		{"service", stores.Filter{Service: "storetest"}, []string{"refused 1", "refused 2", "refused 3", "declined", "panic", "id \x00\xff", "declined"}},
		{"another service", stores.Filter{Service: "STORETEST"}, nil},
		{"handler", stores.Filter{Handler: another.Handler}, []string{"declined"}},
		{"service and handler", stores.Filter{Service: consumer.Service, Handler: consumer.Handler, Status: []stores.Status{stores.StatusPending}}, []string{"refused 1", "refused 2", "panic"}},
		{"unknown handler", stores.Filter{Handler: "unknown"}, nil},
		{"pending", stores.Filter{Status: []stores.Status{stores.StatusPending}}, []string{"refused 1", "refused 2", "panic"}},
		{"discarded", stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}, []string{"discarded"}},
		{"pending and discarded", stores.Filter{Status: []stores.Status{stores.StatusDiscarded, stores.StatusPending}}, []string{"refused 1", "refused 2", "panic", "discarded"}},
		{"completed", stores.Filter{Status: []stores.Status{stores.StatusCompleted}}, nil},
		{"class", stores.Filter{Class: stores.ClassPermanent}, []string{"declined", "declined"}},
		{"unknown class", stores.Filter{Class: "Permanent"}, nil},
		{"cause", stores.Filter{Cause: refused}, []string{"refused 1", "refused 2", "refused 3"}},
		{"cause and status", stores.Filter{Cause: refused, Status: []stores.Status{stores.StatusFailed}}, []string{"refused 3"}},
		{"topic", stores.Filter{Topic: "payments"}, []string{"declined", "panic"}},
		{"text", stores.Filter{ErrorContains: "refused"}, []string{"refused 1", "refused 2", "refused 3"}},
		{"text in capitals", stores.Filter{ErrorContains: "Connection"}, []string{"id \x00\xff"}},
		{"percent sign", stores.Filter{ErrorContains: "0% of"}, []string{"declined"}},
		{"percent sign as a pattern", stores.Filter{ErrorContains: "connection%refused"}, nil},
		{"underscore", stores.Filter{ErrorContains: "card's_limit"}, []string{"declined"}},
		{"underscore as a pattern", stores.Filter{ErrorContains: "inde_"}, nil},
		{"brackets, quotes and a backslash", stores.Filter{ErrorContains: "[1'0\"0]\\"}, []string{"declined"}},
		{"escape codes", stores.Filter{ErrorContains: "\x1b[31m"}, []string{"declined"}},
		{"SQL", stores.Filter{ErrorContains: "' OR '1'='1"}, nil},
		{"SQL in the handler", stores.Filter{Handler: "' OR 1=1 --"}, nil},
		{"NUL in the text", stores.Filter{ErrorContains: "a\x00b"}, nil},
		{"invalid UTF-8 in the handler", stores.Filter{Handler: "\xff"}, nil},
		{"numbers", stores.Filter{Numbers: []int64{number("panic"), number("refused 3"), 1 << 50}}, []string{"refused 3", "panic"}},
		{"numbers of other statuses", stores.Filter{Numbers: []int64{number("discarded")}}, nil},
		{"id", stores.Filter{ID: []byte("id \x00\xff")}, []string{"id \x00\xff"}},
		{"cut id", stores.Filter{ID: []byte("id ")}, nil},
		{"id of two consumers", stores.Filter{ID: []byte("declined")}, []string{"declined", "declined"}},
		{"everything", stores.Filter{
			Service: "storetest", Handler: consumer.Handler, Status: []stores.Status{stores.StatusFailed}, Class: stores.ClassPermanent,
			Topic: "payments", ErrorContains: "card", Numbers: []int64{number("declined")}, ID: []byte("declined"), Since: time.Unix(0, 0), Until: time.Now().Add(later),
		}, []string{"declined"}},
	} {
		b.selects(elsewhere, test.name, test.filter, test.want)
	}
	b.unchanged(before, "looking at messages")
}

// selects fails unless the filter selects the messages, listed, counted and summed up by their causes.
func (b *bench) selects(store stores.Inspector, name string, filter stores.Filter, want []string) {
	b.tb.Helper()
	all, err := store.Messages(b.ctx, stores.MessageQuery{Filter: filter, Limit: 100})
	if err != nil {
		b.tb.Errorf("%s: Messages: %v", name, err)
		return
	}
	var got []string
	var highest int64
	for _, m := range all {
		got = append(got, string(m.Key.ID))
		highest = max(highest, m.Number)
	}
	slices.Reverse(got) // the latest first
	if want := slices.Clone(want); !slices.Equal(got, want) && !sameSet(got, want) {
		b.tb.Errorf("%s: selects %q, want %q", name, got, want)
	}
	n, top, err := store.Matching(b.ctx, filter, 100)
	if err != nil || n != len(want) || top != highest {
		b.tb.Errorf("%s: Matching = %d up to number %d, %v, want %d up to %d", name, n, top, err, len(want), highest)
	}
	causes, err := store.Causes(b.ctx, filter, 100)
	sum := 0
	for _, c := range causes {
		sum += c.Pending + c.Failed + c.Discarded
	}
	if err != nil || sum != len(all) {
		b.tb.Errorf("%s: Causes has %d messages, %v, want %d", name, sum, err, len(all))
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// filterTimes takes the times of the messages, which are the database's.
func filterTimes(b *bench) {
	store := b.open()
	for i := range 3 {
		b.fails(store, fmt.Sprint("message ", i))
		at := b.message(store, fmt.Sprint("message ", i)).LastAt
		// The next one is later in every resolution.
		poll(b.ctx, patience, func() bool {
			b.fails(store, fmt.Sprint("probe ", i, " ", time.Now().UnixNano()), settledFor)
			all, err := store.Messages(b.ctx, stores.MessageQuery{Filter: stores.Filter{Status: []stores.Status{stores.StatusFailed}}, Limit: 1})
			return err == nil && len(all) == 1 && all[0].LastAt.Sub(at) > 5*time.Millisecond
		})
	}
	pending := []stores.Status{stores.StatusPending}
	second := b.message(store, "message 1").LastAt
	const moment = 2 * time.Millisecond
	for _, test := range []struct {
		name         string
		since, until time.Time
		want         []string
	}{
		{"since", second.Add(-moment), time.Time{}, []string{"message 1", "message 2"}},
		{"until", time.Time{}, second.Add(moment), []string{"message 0", "message 1"}},
		{"between", second.Add(-moment), second.Add(moment), []string{"message 1"}},
		{"in another zone", second.Add(-moment).In(time.FixedZone("", 7200)), second.Add(moment).In(time.FixedZone("", -7200)), []string{"message 1"}},
		{"after all", second.Add(later), time.Time{}, nil},
		{"before all", time.Time{}, second.Add(-later), nil},
	} {
		b.selects(store, test.name, stores.Filter{Status: pending, Since: test.since, Until: test.until}, test.want)
	}
}

// message returns a message of the suite's consumer whole.
func (b *bench) message(store stores.Inspector, id string) stores.Message {
	b.tb.Helper()
	m, err := store.Find(b.ctx, stores.Key{Consumer: consumer, ID: []byte(id)})
	if err != nil {
		b.tb.Fatalf("Find(%q): %v", id, err)
	}
	return m
}

// pages reads page by page while messages come and go.
func pages(b *bench) {
	store := b.open()
	const messages, limit = 23, 5
	for i := range messages {
		b.fails(store, fmt.Sprint("message ", i))
	}
	var got []int64
	seen := make(map[int64]bool)
	q := stores.MessageQuery{Limit: limit}
	for page := 0; ; page++ {
		all, err := store.Messages(b.ctx, q)
		if err != nil {
			b.tb.Fatalf("Messages: %v", err)
		}
		if len(all) > limit {
			b.tb.Errorf("a page has %d messages, with a limit of %d", len(all), limit)
		}
		for _, m := range all {
			if seen[m.Number] {
				b.tb.Errorf("message %d is on two pages", m.Number)
			}
			seen[m.Number] = true
			got = append(got, m.Number)
			q.Before = m.Number
		}
		if len(all) == 0 || page > messages {
			break
		}
		b.fails(store, fmt.Sprint("new ", page)) // has no place on the pages to come
	}
	if len(got) != messages || !slices.IsSortedFunc(got, func(a, b int64) int { return int(b - a) }) {
		b.tb.Errorf("the pages have the numbers %v, want %d, the latest first", got, messages)
	}
	if n, _, err := store.Matching(b.ctx, stores.Filter{}, 10); err != nil || n != 10 {
		b.tb.Errorf("Matching with a limit of 10 = %d, %v", n, err)
	}
}

func showMessage(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("shown", "payload")
	claim.TraceParent = stores.TraceParent{1: 1, 20: 2}
	claim.OrderKey = []byte("order")
	f := failureOf(claim)
	f.Version = b.record(here, f)
	f.Attempts, f.Uncounted, f.Error, f.DueIn = 2, 1, "second", later
	version := b.record(here, f)
	row := b.failure("shown")

	listed, err := elsewhere.Messages(b.ctx, stores.MessageQuery{Limit: 10})
	if err != nil || len(listed) != 1 {
		b.tb.Fatalf("Messages = %+v, %v, want one", listed, err)
	}
	found := b.message(elsewhere, "shown")
	whole, err := elsewhere.Message(b.ctx, row.number)
	if err != nil {
		b.tb.Fatalf("Message(%d): %v", row.number, err)
	}
	for what, m := range map[string]stores.Message{"Messages": listed[0], "Find": found, "Message": whole} {
		want := stores.FailureState{
			Version: version, Status: stores.StatusPending, Placement: stores.PlacementParked, Content: stores.ContentKept,
			Class: f.Class, Attempts: 2, Uncounted: 1,
		}
		if m.DueIn < later-time.Minute || m.DueIn > later || m.Age < 0 || m.Age > time.Minute {
			b.tb.Errorf("%s: due in %s at the age of %s", what, m.DueIn, m.Age)
		}
		state := m.FailureState
		if state.DueIn, state.Age = 0, 0; state != want {
			b.tb.Errorf("%s: the state is %+v, want %+v", what, state, want)
		}
		if m.Number != row.number || m.Key.String() != claim.Key.String() || m.Fingerprint != claim.Fingerprint || m.TraceParent != claim.TraceParent ||
			m.Error != "second" || m.Cause != f.Cause || m.Topic != f.Topic || m.Coordinates != f.Coordinates || string(m.OrderKey) != "order" ||
			m.UUID != "shown" || m.PayloadBytes != len(f.Content.Payload) || m.Redrives != 0 || !m.CompletedAt.IsZero() {
			b.tb.Errorf("%s: the message is %+v", what, m)
		}
		if m.LastAt.Before(m.FirstAt) || m.DueAt.Sub(m.LastAt) < later-time.Minute || time.Since(m.FirstAt).Abs() > time.Hour {
			b.tb.Errorf("%s: failed first at %s, last at %s, due at %s", what, m.FirstAt, m.LastAt, m.DueAt)
		}
		if what == "Messages" {
			if m.Payload != nil || m.Metadata != nil || m.Facts.Key != nil || m.History != nil {
				b.tb.Errorf("a list has the payload, metadata or history of a message: %+v", m)
			}
			continue
		}
		b.sameContent(what, stores.Content{State: m.Content, Codec: m.Codec, UUID: m.UUID, Metadata: m.Metadata, Payload: m.Payload, Facts: m.Facts}, *f.Content)
		if len(m.History) != 2 || m.History[0].Class != f.Class || m.History[1].Error != "second" || m.Unreadable != nil {
			b.tb.Errorf("%s: the history is %+v, %v", what, m.History, m.Unreadable)
		}
	}
	_, err = elsewhere.Message(b.ctx, row.number+1000)
	wantErr(b.tb, "Message with an unknown number", err, stores.ErrNotFound)
	for _, k := range []stores.Key{
		{Consumer: consumer, ID: []byte("SHOWN")},
		{Consumer: stores.Consumer{Service: "unknown", Handler: "unknown"}, ID: []byte("shown")},
	} {
		_, err = elsewhere.Find(b.ctx, k)
		wantErr(b.tb, "Find of an unknown message", err, stores.ErrNotFound)
	}
}

func findCompleted(b *bench) {
	store := b.open()
	claim := claimFor("completed", "payload")
	claim.TraceParent = stores.TraceParent{1: 1, 20: 2}
	b.complete(store, claim)
	failing := claimFor("completed at last", "payload")
	version := b.record(store, failureOf(failing))
	number := b.failure("completed at last").number
	b.commit(b.take(store, failing, version))
	for _, id := range []string{"completed", "completed at last"} {
		m := b.message(store, id)
		if m.Status != stores.StatusCompleted || m.Number != 0 || m.Fingerprint != claim.Fingerprint || time.Since(m.CompletedAt).Abs() > time.Hour {
			b.tb.Errorf("Find of a completed message = %+v", m)
		}
	}
	if m := b.message(store, "completed"); m.TraceParent != claim.TraceParent {
		b.tb.Errorf("the trace parent of a completed message is %q, want %q", m.TraceParent, claim.TraceParent)
	}
	_, err := store.Message(b.ctx, number)
	wantErr(b.tb, "Message of a message that is completed by now", err, stores.ErrNotFound)
}
