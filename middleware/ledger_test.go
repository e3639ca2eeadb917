package middleware_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// ledger is a store of one consumer in memory, with the guards of the real ones: for
// what happens between a delivery, a retry worker and a store that comes and goes.
type ledger struct {
	mu       sync.Mutex
	rows     map[string]*ledgerRow
	inFlight map[string]bool
	numbers  int64
	log      []string // what was changed or decided, in order

	quarantined []stores.Quarantined
	backlog     []stores.Backlog
	registered  []stores.Registration

	// fault, if set, is asked before each call, by its name. An error is what the call
	// returns; it changes nothing then.
	fault func(call string) error
	asked map[string]int
	// release, if set, is called with Release.
	release func()
	// attempt, if set, may wrap what Begin returns.
	attempt func(stores.Attempt) stores.Attempt
}

type ledgerRow struct {
	status           stores.Status
	number, revision int64
	failure          stores.Failure
	first, due       time.Time
	presumed         bool
	reserved         bool
	steps            []stores.Step
}

func newLedger() *ledger {
	return &ledger{rows: make(map[string]*ledgerRow), inFlight: make(map[string]bool), asked: make(map[string]int)}
}

// enter begins a call; the caller unlocks.
func (l *ledger) enter(call string) error {
	l.mu.Lock()
	l.asked[call]++
	if l.fault == nil {
		return nil
	}
	return l.fault(call)
}

func (l *ledger) notef(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func (r *ledgerRow) version() int64 { return r.number<<20 + r.revision }

func (r *ledgerRow) state() stores.FailureState {
	s := stores.FailureState{
		Version: r.version(), Status: r.status, Placement: r.failure.Placement, Class: r.failure.Class,
		Attempts: r.failure.Attempts, Uncounted: r.failure.Uncounted, Presumed: r.presumed,
		Age: time.Since(r.first), DueIn: time.Until(r.due),
	}
	if r.failure.Content != nil {
		s.Content = r.failure.Content.State
	}
	return s
}

func (l *ledger) judge(id string, f stores.Fingerprint) stores.Verdict {
	r := l.rows[id]
	if r == nil {
		return stores.Verdict{Outcome: stores.Claimable}
	}
	v := stores.Verdict{Fingerprint: r.failure.Fingerprint}
	switch {
	case f.Compare(r.failure.Fingerprint) == stores.Different:
		v.Outcome = stores.Conflict
	case r.status == stores.StatusCompleted:
		v.Outcome = stores.Duplicate
	case r.status != stores.StatusPending:
		v.Outcome = stores.Final
	case r.failure.Placement == stores.PlacementParked:
		v.Outcome = stores.Parked
	case time.Now().Before(r.due):
		v.Outcome = stores.Deferred
	default:
		v.Outcome = stores.Claimable
	}
	if r.status != stores.StatusCompleted {
		v.Failure = r.state()
	}
	return v
}

func (l *ledger) behind(key []byte) bool {
	for _, r := range l.rows {
		if key != nil && r.status == stores.StatusPending && string(r.failure.OrderKey) == string(key) {
			return true
		}
	}
	return false
}

func (l *ledger) behindEarlier(key []byte, number int64) bool {
	for _, r := range l.rows {
		if key != nil && r.number < number && r.status == stores.StatusPending && string(r.failure.OrderKey) == string(key) {
			return true
		}
	}
	return false
}

func (l *ledger) Begin(_ context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	err := l.enter("begin")
	defer l.mu.Unlock()
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	id := rawID(c.Key)
	if l.inFlight[id] {
		return nil, stores.Verdict{Outcome: stores.InFlight}, nil
	}
	v := l.judge(id, c.Fingerprint)
	switch {
	case c.Take != 0:
		switch {
		case v.Failure.Version == c.Take && l.behindEarlier(c.OrderKey, c.Take>>20):
			v.Outcome = stores.Behind
		case v.Failure.Version == c.Take && v.Failure.Status == stores.StatusPending && v.Outcome != stores.Conflict:
			v.Outcome = stores.Claimed
		case v.Outcome == stores.Claimable:
			v.Outcome = stores.InFlight
		}
	case v.Outcome == stores.Claimable && v.Failure.Version == 0 && l.behind(c.OrderKey):
		v.Outcome = stores.Behind
	case v.Outcome == stores.Claimable:
		v.Outcome = stores.Claimed
	}
	if v.Outcome != stores.Claimed {
		l.notef("%s %s", v.Outcome, id)
		return nil, v, nil
	}
	l.notef("begin %s", id)
	l.inFlight[id] = true
	var a stores.Attempt = &ledgerAttempt{ledger: l, id: id, fingerprint: c.Fingerprint}
	if l.attempt != nil {
		a = l.attempt(a)
	}
	return a, v, nil
}

type ledgerAttempt struct {
	ledger      *ledger
	id          string
	fingerprint stores.Fingerprint
	over        bool
}

func (a *ledgerAttempt) Context(parent context.Context) context.Context { return parent }

func (a *ledgerAttempt) Commit(context.Context) error {
	err := a.ledger.enter("commit")
	defer a.ledger.mu.Unlock()
	if a.over {
		return stores.ErrNotCommitted
	}
	a.over = true
	delete(a.ledger.inFlight, a.id)
	if err != nil {
		return err
	}
	a.ledger.rows[a.id] = &ledgerRow{status: stores.StatusCompleted, failure: stores.Failure{Fingerprint: a.fingerprint}}
	a.ledger.notef("commit %s", a.id)
	return nil
}

func (a *ledgerAttempt) Rollback(context.Context) error {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if !a.over {
		a.over = true
		delete(a.ledger.inFlight, a.id)
		a.ledger.notef("rollback %s", a.id)
	}
	return nil
}

func (l *ledger) Look(_ context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	err := l.enter("look")
	defer l.mu.Unlock()
	if err != nil {
		return stores.Verdict{}, err
	}
	return l.judge(rawID(k), f), nil
}

func (l *ledger) Record(_ context.Context, f stores.Failure) (int64, error) {
	err := l.enter("record")
	defer l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	id := rawID(f.Key)
	r := l.rows[id]
	changed := l.inFlight[id]
	switch {
	case r == nil:
		changed = changed || f.Version != 0
	default:
		changed = changed || r.status != stores.StatusPending || r.version() != f.Version || f.Lapsed && time.Now().Before(r.due)
	}
	if changed {
		l.notef("changed %s", id)
		return 0, stores.ErrChanged
	}
	if r == nil {
		l.numbers++
		r = &ledgerRow{number: l.numbers, first: time.Now()}
		l.rows[id] = r
	} else {
		r.revision++
		if r.failure.Attempts+r.failure.Uncounted == 0 {
			r.first = time.Now() // what it did before was to wait
		}
	}
	if f.Content == nil {
		f.Content = r.failure.Content
	}
	if f.OrderKey == nil {
		f.OrderKey = r.failure.OrderKey
	}
	f.Topic, f.Coordinates = cmp.Or(f.Topic, r.failure.Topic), cmp.Or(f.Coordinates, r.failure.Coordinates)
	if f.Placement == stores.PlacementParked && (f.Content == nil || f.Content.State != stores.ContentKept) {
		return 0, fmt.Errorf("ledger: %s cannot be parked", id)
	}
	f.Key = stores.Key{Consumer: f.Key.Consumer, ID: slices.Clone(f.Key.ID)}
	r.status, r.failure, r.presumed, r.reserved, r.due = f.Status, f, f.Start, false, time.Now().Add(f.DueIn)
	l.notef("record %s %s/%s %s %d+%d", id, f.Status, f.Placement, f.Class, f.Attempts, f.Uncounted)
	return r.version(), nil
}

func (l *ledger) Extend(_ context.Context, h stores.HeldLease, d time.Duration) error {
	err := l.enter("extend")
	defer l.mu.Unlock()
	if err != nil {
		return err
	}
	r := l.rows[rawID(h.Key)]
	if r == nil || r.version() != h.Version || r.status != stores.StatusPending || !r.presumed || r.failure.Holder != h.Holder || !time.Now().Before(r.due) {
		return stores.ErrChanged
	}
	r.due = time.Now().Add(d)
	return nil
}

func (l *ledger) RecordStep(_ context.Context, h stores.HeldLease, s stores.Step) error {
	err := l.enter("step")
	defer l.mu.Unlock()
	if err != nil {
		return err
	}
	r := l.rows[rawID(h.Key)]
	if r == nil || r.version() != h.Version || r.status != stores.StatusPending || !r.presumed || r.failure.Holder != h.Holder {
		return stores.ErrChanged
	}
	r.steps = append(slices.DeleteFunc(r.steps, func(old stores.Step) bool { return old.Name == s.Name }), s)
	return nil
}

func (l *ledger) Steps(_ context.Context, h stores.HeldLease) ([]stores.Step, error) {
	err := l.enter("steps")
	defer l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r := l.rows[rawID(h.Key)]
	if r == nil || r.version() != h.Version || r.status != stores.StatusPending || r.failure.Holder != h.Holder {
		return nil, stores.ErrChanged
	}
	return slices.Clone(r.steps), nil
}

func (l *ledger) KeepContent(_ context.Context, k stores.Key, version int64, c stores.Content) error {
	err := l.enter("keep")
	defer l.mu.Unlock()
	if err != nil {
		return err
	}
	r := l.rows[rawID(k)]
	if r == nil || r.version() != version || r.status != stores.StatusDiscarded && r.status != stores.StatusFailed || r.state().Content != stores.ContentNone {
		return stores.ErrChanged
	}
	r.revision++
	r.failure.Content = &c
	return nil
}

func (l *ledger) Due(_ context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	err := l.enter("due")
	defer l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var due []*ledgerRow
	for id, r := range l.rows {
		if r.status == stores.StatusPending && r.failure.Placement == stores.PlacementParked &&
			!time.Now().Before(r.due) && !l.inFlight[id] && r.failure.Key.Consumer == q.Consumer {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *ledgerRow) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number)) })
	var batch []stores.Retry
	bytes := 0
	for _, r := range due[:min(len(due), q.Limit)] {
		if bytes += len(r.failure.Content.Payload); bytes > q.MaxBytes && len(batch) > 0 {
			break
		}
		suspect := r.reserved
		r.revision++
		r.reserved, r.due = true, time.Now().Add(q.Reserve)
		batch = append(batch, stores.Retry{
			Key: r.failure.Key, Fingerprint: r.failure.Fingerprint, State: r.state(), Suspect: suspect,
			Topic: r.failure.Topic, Coordinates: r.failure.Coordinates, OrderKey: r.failure.OrderKey, Content: *r.failure.Content,
			LastError: r.failure.Error, Cause: r.failure.Cause,
		})
	}
	return batch, nil
}

func (l *ledger) Renew(_ context.Context, reserved []stores.Retry, d time.Duration) error {
	err := l.enter("renew")
	defer l.mu.Unlock()
	if err != nil {
		return err
	}
	for _, r := range reserved {
		if row := l.rows[rawID(r.Key)]; row != nil && row.reserved && row.version() == r.State.Version {
			row.due = time.Now().Add(d)
		}
	}
	return nil
}

func (l *ledger) Release(_ context.Context, reserved []stores.Retry) error {
	err := l.enter("release")
	defer l.mu.Unlock()
	if err != nil {
		return err
	}
	if l.release != nil {
		l.release()
	}
	for _, one := range reserved {
		r := l.rows[rawID(one.Key)]
		if r != nil && r.reserved && r.version() == one.State.Version && !l.inFlight[rawID(one.Key)] {
			r.reserved, r.due = false, time.Now()
			r.revision++
			l.notef("release %s", rawID(one.Key))
		}
	}
	return nil
}

func (l *ledger) Backlog(context.Context, int) ([]stores.Backlog, error) {
	err := l.enter("backlog")
	defer l.mu.Unlock()
	return l.backlog, err
}

func (l *ledger) Register(_ context.Context, r stores.Registration) error {
	err := l.enter("register")
	defer l.mu.Unlock()
	l.registered = append(l.registered, r)
	return err
}

func (l *ledger) Quarantine(_ context.Context, q stores.Quarantined) error {
	err := l.enter("quarantine")
	defer l.mu.Unlock()
	if err == nil {
		l.quarantined = append(l.quarantined, q)
	}
	return err
}

func (l *ledger) Resolve(_ context.Context, k stores.Key) (bool, error) {
	err := l.enter("resolve")
	defer l.mu.Unlock()
	r := l.rows[rawID(k)]
	return r != nil && r.status == stores.StatusCompleted, err
}
