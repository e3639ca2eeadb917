package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// Erasure selects the messages whose content is erased. All selecting fields that are set must
// match.
type Erasure struct {
	Service, Handler string
	ID               []byte // exactly this message id, as it is stored
	OutputID         string // the id of the same message in the outbox, such as a UUID
	OrderKey         []byte
	Topic            string
	ErrorContains    string    // a part of the last error, compared byte by byte
	Since, Until     time.Time // when the row last changed; zero: unbounded

	// Unfinished includes messages that still wait: pending ones, those held in quarantine, and
	// unpublished outputs. They never run or get published afterwards.
	Unfinished bool

	DryRun        bool   // only counts
	Actor, Reason string // kept as long as the audit

	// Archive, if not nil, is called before anything is erased, because purged rows are in the
	// archive only. Its error stops the erasure. It may be called again.
	Archive func(context.Context, Erasure) error
	// Progress, if not nil, is called after each batch, with the number of erased rows.
	Progress func(erased int)
}

// Erased counts the messages of one place.
type Erased struct {
	Place   string // "messages", "quarantine", or "outbox " and a state
	Erased  int    // or would be
	Waiting int    // not erased: they still wait, and Unfinished is not set
	Busy    int    // not erased: they are being processed, or were changed meanwhile

	PassedBy string // why the place was not looked at
}

// ErrNoSelection: the erasure selects nothing, so it would erase everything.
var ErrNoSelection = errors.New("retention: Erase: nothing is selected: set a field such as ID, OrderKey or Topic")

// Erase erases the kept content of messages that have failed, are in quarantine, or are in the
// outbox or its history. Keys and fingerprints stay, so that no message runs again. Completed
// messages keep nothing else. Erase works in batches, each in one transaction with its audit;
// after an error, repeat the call. It reaches neither brokers nor backups.
func Erase(ctx context.Context, store stores.Inspector, e Erasure) (all []Erased, err error) {
	if e.Service+e.Handler+e.OutputID+e.Topic+e.ErrorContains == "" && e.ID == nil && e.OrderKey == nil && e.Since.IsZero() && e.Until.IsZero() {
		return nil, ErrNoSelection
	}
	if e.Archive != nil && !e.DryRun {
		if err := callback.Call("Erasure.Archive", func() error { return e.Archive(ctx, e) }); err != nil {
			return nil, fmt.Errorf("retention: %w: %w", stores.ErrArchive, err)
		}
	}
	r := eraser{Erasure: e, store: store}
	places := []place{{"quarantine", r.notInQuarantine(), r.quarantine}, {"messages", r.notAmongMessages(), r.messages}}
	for _, state := range []stores.OutputState{stores.OutputPending, stores.OutputFailed, stores.OutputPublished} {
		places = append(places, place{"outbox " + string(state), r.notInOutbox(), func(ctx context.Context, done *Erased) error { return r.outputs(ctx, state, done) }})
	}
	for _, p := range places {
		done := Erased{Place: p.name, PassedBy: p.passedBy}
		if p.passedBy == "" {
			err = p.erase(ctx, &done)
		}
		if all = append(all, done); err != nil {
			return all, fmt.Errorf("retention: erase from %s: %w", p.name, err)
		}
	}
	return all, nil
}

// place is a place where content is kept.
type place struct {
	name, passedBy string
	erase          func(context.Context, *Erased) error
}

// eraser is one call of Erase.
type eraser struct {
	Erasure
	store stores.Inspector
	total int
}

func (r *eraser) progress(n int) {
	if r.total += n; r.Progress != nil && n > 0 {
		r.Progress(r.total)
	}
}

func (r *eraser) notAmongMessages() string {
	if r.OutputID != "" && r.ID == nil {
		return "no key is given"
	}
	return ""
}

func (r *eraser) notInQuarantine() string {
	switch {
	case r.OrderKey != nil:
		return "it has no order keys"
	case r.ErrorContains != "":
		return "it has no errors"
	}
	return r.notAmongMessages()
}

func (r *eraser) notInOutbox() string {
	_, ok := r.store.(stores.OutboxInspector)
	switch {
	case !ok:
		return "the store has none"
	case r.Service+r.Handler != "":
		return "it has no consumers"
	case r.ID != nil && r.OutputID == "":
		return "its messages have output ids, not keys"
	}
	return ""
}

// messages erases from the failed messages.
func (r *eraser) messages(ctx context.Context, done *Erased) error {
	return r.failures(ctx, stores.Filter{
		Service: r.Service, Handler: r.Handler, ID: r.ID, OrderKey: r.OrderKey, Topic: r.Topic, ErrorContains: r.ErrorContains, Since: r.Since, Until: r.Until,
	}, done)
}

func (r *eraser) failures(ctx context.Context, f stores.Filter, done *Erased) error {
	ended, pending := []stores.Status{stores.StatusFailed, stores.StatusDiscarded}, []stores.Status{stores.StatusPending}
	if r.Unfinished {
		ended = append(ended, pending...)
	} else {
		f.Status = pending
		n, err := r.countFailures(ctx, f)
		if err != nil {
			return err
		}
		done.Waiting += n
	}
	f.Status = ended
	if r.DryRun {
		n, err := r.countFailures(ctx, f)
		done.Erased += n
		return err
	}
	c := stores.Change{Verb: stores.VerbErase, Filter: f, Actor: r.Actor, Reason: r.Reason, Limit: batch / 2}
	for {
		got, err := r.store.Change(ctx, c)
		if err != nil {
			return err
		}
		done.Erased, done.Busy = done.Erased+got.Changed, done.Busy+got.Busy+got.Reserved
		r.progress(got.Changed)
		if c.After = got.Next; got.Done {
			return nil
		}
	}
}

// countFailures counts the rows that are not erased yet.
func (r *eraser) countFailures(ctx context.Context, f stores.Filter) (n int, err error) {
	for q := (stores.MessageQuery{Filter: f, Limit: batch}); ; {
		page, err := r.store.Messages(ctx, q)
		if err != nil {
			return n, err
		}
		for _, m := range page {
			if m.Content != stores.ContentErased {
				n++
			}
		}
		if len(page) < q.Limit {
			return n, nil
		}
		q.Before = page[len(page)-1].Number
	}
}

// quarantine erases row by row, including the messages that were released under another id.
func (r *eraser) quarantine(ctx context.Context, done *Erased) error {
	for _, status := range []stores.QuarantineStatus{stores.QuarantineHeld, stores.QuarantineReleased, stores.QuarantineRejected} {
		q := stores.QuarantineQuery{
			Service: r.Service, Handler: r.Handler, Status: status, Topic: r.Topic, ID: r.ID, Since: r.Since, Until: r.Until, Limit: batch,
		}
		for more := true; more; {
			page, err := r.store.Quarantined(ctx, q)
			if err != nil {
				return err
			}
			for _, row := range page {
				if err := r.row(ctx, row, done); err != nil {
					return err
				}
				q.Before = row.RowID
			}
			more = len(page) == q.Limit
		}
	}
	return nil
}

func (r *eraser) row(ctx context.Context, row stores.QuarantineRow, done *Erased) error {
	switch row.Status {
	case stores.QuarantineHeld:
		if !r.Unfinished {
			done.Waiting++
			return nil
		}
	case stores.QuarantineReleased: // first the released message, which may still run
		f := stores.Filter{Service: row.Consumer.Service, Handler: row.Consumer.Handler, ID: stores.ReleasedID(row.RowID)}
		before := done.Waiting + done.Busy
		if err := r.failures(ctx, f, done); err != nil || done.Waiting+done.Busy > before {
			return err
		}
	default:
	}
	if r.DryRun {
		done.Erased++
		return nil
	}
	err := r.store.Decide(ctx, stores.Decision{Verb: stores.VerbErase, RowID: row.RowID, From: row.Status, Actor: r.Actor, Reason: r.Reason})
	switch {
	case errors.Is(err, stores.ErrChanged), errors.Is(err, stores.ErrNotFound):
		done.Busy++
		return nil
	case err != nil:
		return err
	}
	done.Erased++
	r.progress(1)
	return nil
}

// outputs erases from the outbox.
func (r *eraser) outputs(ctx context.Context, state stores.OutputState, done *Erased) error {
	outbox, _ := r.store.(stores.OutboxInspector)
	f := stores.OutputFilter{State: state, ID: r.OutputID, OrderKey: r.OrderKey, Topic: r.Topic, ErrorContains: r.ErrorContains, Since: r.Since, Until: r.Until}
	waits := state == stores.OutputPending && !r.Unfinished
	if waits || r.DryRun {
		const most = 1 << 30
		n, _, err := outbox.MatchingOutputs(ctx, f, most)
		if waits {
			done.Waiting = n
		} else {
			done.Erased = n
		}
		return err
	}
	c := stores.OutputChange{Verb: stores.VerbEraseOutput, Filter: f, Actor: r.Actor, Reason: r.Reason, Limit: batch / 2}
	for {
		got, err := outbox.ChangeOutputs(ctx, c)
		if err != nil {
			return err
		}
		done.Erased, done.Busy = done.Erased+got.Changed, done.Busy+got.Busy
		r.progress(got.Changed)
		if c.After = got.Next; got.Done {
			return nil
		}
	}
}
