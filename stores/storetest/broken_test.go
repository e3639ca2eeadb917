package storetest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// variant is a store, or an adapter's harness, with one rule broken.
type variant struct {
	name    string
	wrap    func(stores.Store, *sql.DB) stores.Store
	harness func(*Harness)
	fails   []string      // the checks that must notice
	limit   time.Duration // of a check that would otherwise wait for long
}

var broken = []variant{
	{
		name:  "the claim is committed apart from the handler",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return claimsApart{s} },
		fails: []string{"claim/rollback leaves nothing", "claim/nothing is visible before the commit", "handler/honest", "handler/panics"},
	},
	{
		name:  "Commit says yes without proof",
		limit: 5 * time.Second,
		wrap:  onCommit(func(ctx context.Context, a stores.Attempt) error { _ = a.Commit(ctx); return nil }),
		fails: []string{"statement/Exec", "handler/run twice in one transaction", "handler/acks its message"},
	},
	{
		name: "Commit calls every failure unknown",
		wrap: onCommit(func(ctx context.Context, a stores.Attempt) error {
			if err := a.Commit(ctx); err != nil {
				return stores.ErrCommitUnknown
			}
			return nil
		}),
		fails: []string{"statement/Exec", "handler/run twice in one transaction"},
	},
	{
		name: "Commit's errors are not the contract's",
		wrap: onCommit(func(ctx context.Context, a stores.Attempt) error {
			if err := a.Commit(ctx); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}),
		fails: []string{"statement/Exec", "claim/the end of an attempt"},
	},
	{
		name: "the typed handler does not tell what was returned",
		harness: func(h *Harness) {
			h.Handler = func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
				return func(msg *message.Message) error { return f(msg.Context(), msg) }
			}
		},
		fails: []string{"handler/a middleware inside the inbox hides its failure"},
	},
	{
		name: "Rollback commits",
		wrap: onRollback(func(ctx context.Context, a stores.Attempt) error { return a.Commit(ctx) }),
		// Not "handler/honest": Commit refuses an attempt whose typed handler has failed.
		fails: []string{
			"claim/rollback leaves nothing", "handler/panics", "inbox/returned messages",
			"race/many keys, some rolled back", "inbox/commit is lost",
		},
	},
	{
		name:  "Rollback does nothing",
		wrap:  onRollback(func(ctx context.Context, a stores.Attempt) error { return nil }),
		fails: []string{"claim/the end of an attempt"},
	},
	{
		name:  "Begin waits for the holder",
		wrap:  onBegin(waits),
		fails: []string{"claim/in flight in the same store"},
	},
	{
		name: "a held key looks like a duplicate",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if v.Outcome == stores.InFlight {
				v.Outcome = stores.Duplicate
			}
			return a, v, err
		}),
		fails: []string{"claim/in flight in the same store", "inbox/held while in flight", "inbox/given back while in flight"},
	},
	{
		name:  "ids are compared without case",
		wrap:  onID(bytes.ToLower),
		fails: []string{"ids/claimed byte by byte", "ids/through the inbox byte by byte"},
	},
	{
		name:  "ids are compared without trailing spaces",
		wrap:  onID(func(id []byte) []byte { return bytes.TrimRight(id, " ") }),
		fails: []string{"ids/claimed byte by byte", "ids/through the inbox byte by byte"},
	},
	{
		name: "ids end at a NUL",
		wrap: onID(func(id []byte) []byte {
			before, _, _ := bytes.Cut(id, []byte{0})
			return before
		}),
		fails: []string{"ids/claimed byte by byte", "ids/through the inbox byte by byte"},
	},
	{
		name:  "invalid UTF-8 is replaced",
		wrap:  onID(func(id []byte) []byte { return bytes.ToValidUTF8(id, []byte("\uFFFD")) }),
		fails: []string{"ids/claimed byte by byte", "ids/through the inbox byte by byte"},
	},
	{
		name: "a conflict overwrites the first row",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
				a, v, err := s.Begin(ctx, c)
				if v.Outcome == stores.Conflict {
					_, err = admin.ExecContext(ctx, "UPDATE millpond_inbox SET fingerprint = ?", c.Fingerprint.Bytes())
				}
				return a, v, err
			})(s, admin)
		},
		fails: []string{"claim/conflict", "inbox/conflict"},
	},
	{
		name: "a conflict is taken for a duplicate",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if v.Outcome == stores.Conflict {
				v.Outcome = stores.Duplicate
			}
			return a, v, err
		}),
		fails: []string{"claim/conflict", "inbox/conflict", "race/different messages under one id"},
	},
	{
		name: "fingerprints that cannot be compared are a conflict",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if v.FingerprintUnknown {
				v.Outcome = stores.Conflict
			}
			return a, v, err
		}),
		fails: []string{"claim/fingerprints that cannot be compared"},
	},
	{
		name: "the verdict forgets who did the work",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			v.TraceParent, v.CompletedAt = stores.TraceParent{}, time.Time{}
			return a, v, err
		}),
		fails: []string{"claim/verdict"},
	},
	{
		name: "the attempt ends with the context of Begin",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if a != nil {
				a = boundTo{a, ctx}
			}
			return a, v, err
		}),
		fails: []string{"claim/the context of Begin"},
	},
	{
		name: "consumers are compared without case",
		wrap: func(s stores.Store, _ *sql.DB) stores.Store { return foldsConsumers{s} },
		fails: []string{
			"registry/names byte by byte",
		},
	},
	{
		name:  "every topic is accepted",
		wrap:  onRegister(func(r *stores.Registration) { r.AcceptTopic = true }),
		fails: []string{"registry/topics", "registry/two services with one name", "inbox/two services with one consumer name"},
	},
	{
		name:  "topics are forgotten",
		wrap:  onRegister(func(r *stores.Registration) { r.Topic = "" }),
		fails: []string{"registry/topics", "inbox/two services with one consumer name"},
	},
	{
		name:  "quarantine drops",
		wrap:  onQuarantine(func(ctx context.Context, s stores.Store, q stores.Quarantined) error { return nil }),
		limit: 3 * time.Second,
		fails: []string{"quarantine/kept as it came", "ids/kept in quarantine byte by byte", "inbox/conflict", "handler/acks its message"},
	},
	{
		name: "quarantine cuts payloads",
		wrap: onQuarantine(func(ctx context.Context, s stores.Store, q stores.Quarantined) error {
			q.Payload = q.Payload[:min(len(q.Payload), 1<<20)]
			return s.Quarantine(ctx, q)
		}),
		fails: []string{"quarantine/large payload"},
	},
	{
		name: "quarantine makes metadata valid",
		wrap: onQuarantine(func(ctx context.Context, s stores.Store, q stores.Quarantined) error {
			valid := make(map[string]string)
			for name, value := range q.Metadata {
				valid[name] = strings.ToValidUTF8(value, "\uFFFD")
			}
			q.Metadata = valid
			return s.Quarantine(ctx, q)
		}),
		limit: 3 * time.Second,
		fails: []string{"quarantine/kept as it came", "inbox/conflict"},
	},
	{
		name: "quarantine merges different fingerprints",
		wrap: onQuarantine(func(ctx context.Context, s stores.Store, q stores.Quarantined) error {
			q.Fingerprint = stores.Fingerprint{}
			return s.Quarantine(ctx, q)
		}),
		fails: []string{"quarantine/merged only when identical"},
	},
	{
		name: "quarantine fails on text that is not valid",
		wrap: onQuarantine(func(ctx context.Context, s stores.Store, q stores.Quarantined) error {
			if strings.ToValidUTF8(q.Coordinates+q.Topic+q.Detail, "") != q.Coordinates+q.Topic+q.Detail {
				return stores.ErrUnavailable
			}
			return s.Quarantine(ctx, q)
		}),
		fails: []string{"quarantine/hostile text"},
	},
	{
		name: "completed keys are forgotten",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
				a, v, err := s.Begin(ctx, c)
				if v.Outcome == stores.Duplicate {
					_, _ = admin.ExecContext(ctx, "DELETE FROM millpond_inbox")
					return s.Begin(ctx, c)
				}
				return a, v, err
			})(s, admin)
		},
		fails: []string{"claim/first sight and duplicates", "inbox/duplicates", "race/many deliveries of one key", "handler/honest"},
	},
	{
		name: "an answer keeps its connection",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if v.Outcome == stores.Duplicate {
				c.Key.ID = []byte("kept")
				_, _, _ = s.Begin(ctx, c)
			}
			return a, v, err
		}),
		limit: 3 * time.Second,
		fails: []string{"claim/every answer gives its connection back"},
	},
	{
		name: "a store that cannot be asked says duplicate",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if err != nil {
				return nil, stores.Verdict{Outcome: stores.Duplicate}, nil
			}
			return a, v, nil
		}),
		fails: []string{"outage/the database cannot be used", "inbox/closed store", "schema/without a table", "ids/invalid keys"},
	},
	{
		name: "all consumers count as one",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			err := s.Register(ctx, stores.Registration{Consumer: consumer})
			if err != nil {
				return nil, stores.Verdict{}, err
			}
			c.Key.Consumer = consumer
			return s.Begin(ctx, c)
		}),
		fails: []string{"claim/consumers are isolated", "claim/before Register", "inbox/two handlers", "registry/names byte by byte"},
	},
	{
		name:  "Migrate always claims to have done something",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return migrates{s} },
		fails: []string{"schema/Migrate", "schema/Migrate concurrently", "schema/Migrations by hand"},
	},
	{
		name:  "Resolve always says yes",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return resolves{s, true} },
		fails: []string{"resolve/settled keys", "resolve/waits for a rollback"},
	},
	{
		name:  "Resolve always says no",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return resolves{s, false} },
		fails: []string{"resolve/settled keys", "resolve/waits for a commit", "resolve/is bounded"},
	},
	{
		name:  "Validate is always content",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return content{s} },
		fails: []string{"schema/before Migrate", "schema/newer schema", "claim/closed"},
	},
	{
		name: "the typed helper lets a handler run twice",
		harness: func(h *Harness) {
			h.Handler = func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
				return func(msg *message.Message) error { return f(msg.Context(), msg) }
			}
		},
		fails: []string{"handler/run twice in one transaction", "handler/a Retry inside the inbox", "handler/without an attempt"},
	},
}

// claimsApart commits the claim at once, as a dedup table beside the handler does,
// and gives the handler a transaction of its own.
type claimsApart struct{ stores.Store }

func (s claimsApart) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, v, err := s.Store.Begin(ctx, c)
	if a == nil {
		return nil, v, err
	}
	if err := a.Commit(ctx); err != nil {
		return nil, stores.Verdict{}, err
	}
	c.Key.ID = append([]byte("handler of "), c.Key.ID...)
	return s.Store.Begin(ctx, c)
}

type begin func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error)

type begins struct {
	stores.Store
	begin begin
}

func (s begins) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	return s.begin(ctx, s.Store, c)
}

func onBegin(f begin) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store { return begins{s, f} }
}

func onID(f func([]byte) []byte) func(stores.Store, *sql.DB) stores.Store {
	return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
		c.Key.ID = f(c.Key.ID)
		c.Key.ID = c.Key.ID[:min(len(c.Key.ID), stores.MaxIDBytes)]
		c.Fingerprint = stores.Fingerprint{} // which would notice
		return s.Begin(ctx, c)
	})
}

func waits(ctx context.Context, s stores.Store, c stores.Claim) (a stores.Attempt, v stores.Verdict, err error) {
	poll(ctx, time.Minute, func() bool {
		a, v, err = s.Begin(ctx, c)
		return err != nil || v.Outcome != stores.InFlight
	})
	return a, v, err
}

type wrappedAttempt struct {
	stores.Attempt
	commit, rollback func(ctx context.Context, a stores.Attempt) error
}

func (w wrappedAttempt) Emit(outputs []stores.Output) error {
	return w.Attempt.(stores.Emitter).Emit(outputs)
}

func (w wrappedAttempt) Commit(ctx context.Context) error {
	if w.commit == nil {
		return w.Attempt.Commit(ctx)
	}
	return w.commit(ctx, w.Attempt)
}

func (w wrappedAttempt) Rollback(ctx context.Context) error {
	if w.rollback == nil {
		return w.Attempt.Rollback(ctx)
	}
	return w.rollback(ctx, w.Attempt)
}

func onAttempt(f func(stores.Attempt) stores.Attempt) func(stores.Store, *sql.DB) stores.Store {
	return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
		a, v, err := s.Begin(ctx, c)
		if a != nil {
			a = f(a)
		}
		return a, v, err
	})
}

func onCommit(f func(ctx context.Context, a stores.Attempt) error) func(stores.Store, *sql.DB) stores.Store {
	return onAttempt(func(a stores.Attempt) stores.Attempt { return wrappedAttempt{Attempt: a, commit: f} })
}

func onRollback(f func(ctx context.Context, a stores.Attempt) error) func(stores.Store, *sql.DB) stores.Store {
	return onAttempt(func(a stores.Attempt) stores.Attempt { return wrappedAttempt{Attempt: a, rollback: f} })
}

// boundTo is over when the context of Begin is.
type boundTo struct {
	stores.Attempt
	begun context.Context
}

func (b boundTo) Emit(outputs []stores.Output) error {
	return b.Attempt.(stores.Emitter).Emit(outputs)
}

func (b boundTo) Commit(ctx context.Context) error {
	if b.begun.Err() != nil {
		return errors.Join(stores.ErrNotCommitted, b.Rollback(ctx))
	}
	return b.Attempt.Commit(ctx)
}

type foldsConsumers struct{ stores.Store }

func (s foldsConsumers) Register(ctx context.Context, r stores.Registration) error {
	r.Consumer.Service = strings.ToLower(r.Consumer.Service)
	return s.Store.Register(ctx, r)
}

func (s foldsConsumers) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	c.Key.Consumer.Service = strings.ToLower(c.Key.Consumer.Service)
	return s.Store.Begin(ctx, c)
}

type registers struct {
	stores.Store
	change func(*stores.Registration)
}

func (s registers) Register(ctx context.Context, r stores.Registration) error {
	s.change(&r)
	return s.Store.Register(ctx, r)
}

func onRegister(f func(*stores.Registration)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store { return registers{s, f} }
}

type keep func(ctx context.Context, s stores.Store, q stores.Quarantined) error

type quarantines struct {
	stores.Store
	keep keep
}

func (s quarantines) Quarantine(ctx context.Context, q stores.Quarantined) error {
	return s.keep(ctx, s.Store, q)
}

func onQuarantine(f keep) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store { return quarantines{s, f} }
}

type resolves struct {
	stores.Store
	answer bool
}

func (s resolves) Resolve(context.Context, stores.Key) (bool, error) { return s.answer, nil }

type migrates struct{ stores.Store }

func (s migrates) Migrate(ctx context.Context) ([]stores.Migration, error) {
	_, err := s.Store.Migrate(ctx)
	return s.Migrations(), err
}

type content struct{ stores.Store }

func (content) Validate(context.Context) error { return nil }
