package middleware

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware/internal/batch"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// BatchConfig lets concurrent deliveries of a handler share a transaction and its commit. Zero
// values mean the defaults of their tags.
//
// The handler does not change. Each message has its own claim, savepoint and outcome; a message
// that cannot share runs in a transaction of its own. The handlers of a batch run one after the
// other: batches suit handlers that spend their time in the store's database, with many messages
// in flight. docs/batches.md says what the messages share.
type BatchConfig struct {
	Size int `config:"size" default:"32" check:"positive" about:"The largest number of messages that share a transaction."`

	From int `config:"from" default:"16" check:"positive" about:"With at least this many messages in flight they share transactions. Fewer are faster alone."`

	// Time adds to the time that a message may take.
	Time time.Duration `config:"time" default:"200ms" check:"positive" about:"After this time no further message of a batch begins; the others run alone."`
}

// maxBatch is how many members a batch may have: with more, savepoints become slow.
const maxBatch = 32

// batchPlaces is how many places a consumer has for batches: more would lock the same rows and
// deadlock. On a store with one writer at a time there is one place: further batches would only
// wait, while their members could join the next one.
const batchPlaces = 4

func (b BatchConfig) validate(name string, c *InboxConfig, bad func(name, format string, args ...any)) {
	whole := *c
	field.SetDefaults(&whole)
	field.SetDefaults(&b)
	if b.Size > maxBatch {
		bad(name+".Size", "is %d: use at most %d", b.Size, maxBatch)
	}
	if b.Time > whole.HandlerTimeout {
		bad(name+".Time", "is %s, and HandlerTimeout is %s: a batch must not wait longer for its members than for one of them. Use less", b.Time, whole.HandlerTimeout)
	}
}

// addBatches adds the modes of handlers that share transactions.
func (m *modes) addBatches(store Store, c *InboxConfig, told func(handler string, e batch.End)) error {
	if len(c.BatchByHandler) == 0 {
		return nil
	}
	batcher, ok := store.(stores.Batcher)
	if !ok {
		return fmt.Errorf("BatchByHandler is set, and the store, a %T, has no batches: it is no stores.Batcher. Remove it, or use PostgreSQL, MariaDB, MySQL or SQLite", store)
	}
	places := batchPlaces
	if can, ok := store.(interface{ Capabilities() stores.Capabilities }); ok && can.Capabilities().SingleWriter {
		places = 1
	}
	alone := execute.InTransactions(store, m.bounds)
	m.batches = make(map[string]*batch.Collector, len(c.BatchByHandler))
	for handler, b := range c.BatchByHandler {
		collector := batch.New(batcher, batch.Config{
			Size: b.Size, From: b.From, Places: places, Time: b.Time,
			Claim: c.ClaimTimeout, Commit: c.CommitTimeout, Handler: c.HandlerTimeout,
			Ended: func(e batch.End) { told(handler, e) },
		})
		m.batches[handler] = collector
		m.own[handler] = execute.InBatches(alone, store, collector)
	}
	return nil
}

// BatchState is the state of a handler's batches.
type BatchState struct {
	Size  int    // the next batch's limit. Below 2 each message runs alone; 0: no message yet
	Apart string // what the handler did that cannot be shared; since then it runs alone

	// Since the start.
	Batches int
	Lost    int    // batches that were not committed, or whose commit is unknown
	Why     string // of the last lost batch, in millpond's words; the log and BatchEnd.Lost have the database's
	Left    int    // messages that left a batch: they failed, or need a transaction of their own
}

// Batches returns the state of the handlers of InboxConfig.BatchByHandler.
func (in *Inbox) Batches() map[string]BatchState {
	states := make(map[string]BatchState, len(in.handlers.modes.batches))
	for handler, collector := range in.handlers.modes.batches {
		size, apart := collector.Size()
		t := collector.Tally()
		state := BatchState{Size: size, Apart: apart, Batches: t.Batches, Lost: t.Lost, Left: t.Left}
		if t.Why != nil {
			state.Why = text.Known(t.Why)
		}
		states[handler] = state
	}
	return states
}

// batchEnded reports the end of a batch to hooks, state and log.
func (in *Inbox) batchEnded(handler string, e batch.End) {
	consumer := stores.Consumer{Service: in.config.Service, Handler: cmp.Or(in.config.Handler, in.config.Renamed[handler], handler)}
	if e.Why != "" {
		in.config.Logger.Warn("millpond: the handler does not share transactions any more", slog.String("handler", consumer.String()),
			slog.String("reason", text.Printable(stores.ErrNotShared)), slog.String("what", text.Shown(e.Why)))
	}
	if kind := (loglimit.Kind{Consumer: consumer, Result: "batch lost"}); e.Lost != nil && in.logLimit.Pass(kind, func(left int) {
		in.config.Logger.Warn("millpond: more batches were lost than are logged",
			slog.String("consumer", consumer.String()), slog.Int("not_logged", left), slog.Duration("within", loglimit.Within))
	}) {
		in.config.Logger.Warn("millpond: a batch was not committed, or its outcome is unknown: its messages run again, each alone",
			slog.String("consumer", consumer.String()), slog.Int("messages", e.Size), slog.String("error", text.Printable(e.Lost)))
	}
	end := BatchEnd{
		Consumer: consumer, Size: e.Size, Kept: e.Kept, NotWon: e.Unwon, Failed: e.Failed, Apart: e.Apart, Late: e.Late, Lost: e.Lost, Took: e.Took,
	}
	for _, hook := range in.hooks.batch {
		in.hooks.call("Hook.BatchEnded", func() { hook.BatchEnded(end) })
	}
}
