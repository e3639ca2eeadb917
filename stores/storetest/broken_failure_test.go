package storetest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// brokenFailures break the rules of failed messages.
var brokenFailures = []variant{
	{
		name: "Look says something else than a claim",
		wrap: onLook(func(ctx context.Context, s stores.Store, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
			v, err := s.Look(ctx, k, f)
			if v.Outcome == stores.Duplicate {
				v.Outcome = stores.InFlight
			}
			return v, err
		}),
		fails: []string{"claim/first sight and duplicates", "ids/claimed byte by byte", "look/where a message stands"},
	},
	{
		name: "Look claims",
		wrap: onLook(func(ctx context.Context, s stores.Store, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
			if a, v, err := s.Begin(ctx, stores.Claim{Key: k, Fingerprint: f}); a != nil {
				v.Outcome = stores.Claimable
				return v, errors.Join(err, a.Commit(ctx))
			}
			return s.Look(ctx, k, f)
		}),
		fails: []string{"look/where a message stands"},
	},
	{
		name: "attempts are counted in the attempt's transaction, and rolled back with it",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onRollback(func(ctx context.Context, a stores.Attempt) error {
				if err := a.Rollback(ctx); err != nil {
					return err
				}
				_, err := admin.ExecContext(ctx, "UPDATE millpond_failure SET attempts = attempts - 1, presumed = 0")
				return err
			})(s, admin)
		},
		fails: []string{"record/counts outlast a rollback", "take/rollback leaves the row as it was", "parked/poison"},
	},
	{
		name: "Record forgets",
		wrap: onRecord(func(_ context.Context, _ stores.Store, f stores.Failure) (int64, error) { return f.Version + 1, nil }),
		fails: []string{
			"record/a first failure", "record/guarded by the version", "take/completes a parked message", "parked/fails", "parked/poison", "inbox/returned messages",
		},
	},
	{
		name: "a failure is recorded over whatever is there",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
				version, err := s.Record(ctx, f)
				if !errors.Is(err, stores.ErrChanged) {
					return version, err
				}
				for _, table := range []string{"millpond_inbox", "millpond_failure"} {
					if _, err := admin.ExecContext(ctx, "DELETE FROM "+table+" WHERE message_id = ?", f.Key.ID); err != nil {
						return 0, err
					}
				}
				f.Version = 0
				return s.Record(ctx, f)
			})(s, admin)
		},
		limit: 3 * time.Second,
		fails: []string{"record/never touches a completed row", "record/never touches a settled row", "record/guarded by the version", "record/one of many"},
	},
	{
		name: "Record does not look at the version",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			if v, err := s.Look(ctx, f.Key, f.Fingerprint); err == nil && v.Failure.Status == stores.StatusPending {
				f.Version = v.Failure.Version
			}
			return s.Record(ctx, f)
		}),
		fails: []string{"record/guarded by the version", "due/reserves", "record/one of many"},
	},
	{
		name: "a record raises the version by two",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			version, err := s.Record(ctx, f)
			if err != nil || f.Version == 0 || f.Status != stores.StatusPending {
				return version, err
			}
			f.Version = version
			return s.Record(ctx, f)
		}),
		fails: []string{"record/guarded by the version"},
	},
	{
		name: "Record waits for the delivery in flight",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (version int64, err error) {
			poll(ctx, time.Minute, func() bool {
				version, err = s.Record(ctx, f)
				return !errors.Is(err, stores.ErrChanged)
			})
			return version, err
		}),
		fails: []string{"record/never waits for a first delivery in flight", "record/never waits for a takeover in flight"},
	},
	{
		name: "Record parks what it cannot run",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			if f.Placement == stores.PlacementParked && (f.Content == nil || f.Content.State != stores.ContentKept) {
				f.Placement = stores.PlacementRedelivered
			}
			return s.Record(ctx, f)
		}),
		fails: []string{"record/parked without content"},
	},
	{
		name:  "Record keeps the caller's slices",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return &defers{Store: s} },
		fails: []string{"record/content byte by byte"},
	},
	{
		name: "Record makes metadata valid",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			if f.Content != nil {
				content := *f.Content
				content.Metadata = map[string]string{"key": "value"}
				f.Content = &content
			}
			return s.Record(ctx, f)
		}),
		fails: []string{"record/content byte by byte"},
	},
	{
		name: "Record refuses what a text column does not take",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			if len(f.Error) > stores.MaxErrorBytes {
				return 0, stores.ErrTooLarge
			}
			return s.Record(ctx, f)
		}),
		fails: []string{"record/hostile text"},
	},
	{
		name: "a crash leaves no trace in the history",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			f.Start = false
			return s.Record(ctx, f)
		}),
		fails: []string{"record/presumed", "look/the state of a failure"},
	},
	{
		name:  "due by the clock of the process, which is days behind",
		limit: 3 * time.Second,
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			f.DueIn -= 48 * time.Hour
			return s.Record(ctx, f)
		}),
		fails: []string{"due/by the database's clock", "due/what is due", "look/where a message stands", "take/redelivered when it is due"},
	},
	{
		name: "due by the clock of the process, which is days ahead",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			f.DueIn += 48 * time.Hour
			return s.Record(ctx, f)
		}),
		limit: 3 * time.Second,
		fails: []string{"due/by the database's clock", "due/what is due", "take/redelivered when it is due", "parked/fails"},
	},
	{
		name: "the version is not looked at by a takeover",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			if c.Take != 0 {
				if v, err := s.Look(ctx, c.Key, c.Fingerprint); err == nil && v.Failure.Version != 0 {
					c.Take = v.Failure.Version
				}
			}
			return s.Begin(ctx, c)
		}),
		fails: []string{"take/only in that version", "due/reserves", "due/lapsed reservations are suspect"},
	},
	{
		name: "deliveries take parked messages over",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if v.Outcome == stores.Parked && c.Take == 0 {
				c.Take = v.Failure.Version
				return s.Begin(ctx, c)
			}
			return a, v, err
		}),
		fails: []string{"take/parked messages are not for deliveries", "take/rollback leaves the row as it was", "order/a message's own row comes first"},
	},
	{
		name: "a settled message is claimed",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
				a, v, err := s.Begin(ctx, c)
				if v.Outcome == stores.Final {
					for _, table := range []string{"millpond_inbox", "millpond_failure"} {
						if _, err := admin.ExecContext(ctx, "UPDATE "+table+" SET status = 3 WHERE message_id = ?", c.Key.ID); err != nil {
							return nil, stores.Verdict{}, err
						}
					}
					c.Take = v.Failure.Version
					return s.Begin(ctx, c)
				}
				return a, v, err
			})(s, admin)
		},
		fails: []string{"take/only in that version", "change/discard", "parked/poison"},
	},
	{
		name: "a conflict with a failed message is none",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if v.Outcome == stores.Conflict && v.Failure.Version != 0 {
				v.Outcome = stores.Final
			}
			return a, v, err
		}),
		fails: []string{"take/conflict"},
	},
	{
		name:  "a takeover leaves the failure",
		limit: 3 * time.Second,
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
				a, v, err := s.Begin(ctx, c)
				if a != nil && c.Take != 0 {
					a = wrappedAttempt{Attempt: a, commit: func(ctx context.Context, a stores.Attempt) error {
						if err := a.Commit(ctx); err != nil {
							return err
						}
						_, err := admin.ExecContext(ctx, `INSERT INTO millpond_failure (consumer, message_id, status, placement, content, attempts, uncounted, due_at,
class, cause, error, topic, coordinates) SELECT id, ?, 3, 1, 1, 1, 0, 0, '', '', '', '', '' FROM millpond_consumer WHERE service = ? AND handler = ?`,
							c.Key.ID, c.Key.Consumer.Service, c.Key.Consumer.Handler)
						return err
					}}
				}
				return a, v, err
			})(s, admin)
		},
		fails: []string{"take/completes a parked message", "change/retry", "parked/fails"},
	},
	{
		name: "a takeover is committed at once",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			a, v, err := s.Begin(ctx, c)
			if a == nil || c.Take == 0 {
				return a, v, err
			}
			if err := a.Commit(ctx); err != nil {
				return nil, v, err
			}
			c.Key.ID, c.Take = append([]byte("handler of "), c.Key.ID...), 0
			return s.Begin(ctx, c)
		}),
		fails: []string{"take/completes a parked message", "take/rollback leaves the row as it was", "take/dishonest by Exec"},
	},
	{
		name: "Due does not reserve",
		wrap: onDue(func(ctx context.Context, s stores.Store, q stores.DueQuery) ([]stores.Retry, error) {
			due, err := s.Due(ctx, q)
			return due, errors.Join(err, s.Release(ctx, due))
		}),
		fails: []string{"due/reserves", "due/once, of many", "due/longest first, up to the limit", "order/workers and deliveries at once"},
		limit: 4 * time.Second,
	},
	{
		name: "Due returns messages whatever their size",
		wrap: onDue(func(ctx context.Context, s stores.Store, q stores.DueQuery) ([]stores.Retry, error) {
			q.MaxBytes = 0
			return s.Due(ctx, q)
		}),
		fails: []string{"due/longest first, up to the bytes"},
	},
	{
		name: "Due returns nothing of what is too large",
		wrap: onDue(func(ctx context.Context, s stores.Store, q stores.DueQuery) ([]stores.Retry, error) {
			due, err := s.Due(ctx, q)
			return slices.DeleteFunc(due, func(r stores.Retry) bool { return q.MaxBytes > 0 && len(r.Content.Payload) > q.MaxBytes }), err
		}),
		fails: []string{"due/longest first, up to the bytes"},
	},
	{
		name: "Due reads the clock of the process, which is days ahead",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onDue(func(ctx context.Context, s stores.Store, q stores.DueQuery) ([]stores.Retry, error) {
				const days = 2 * 24 * 3600 * 1_000_000
				if _, err := admin.ExecContext(ctx, "UPDATE millpond_failure SET due_at = due_at - ?", days); err != nil {
					return nil, err
				}
				return s.Due(ctx, q)
			})(s, admin)
		},
		fails: []string{"due/what is due", "due/by the database's clock", "due/reserves"},
	},
	{
		name: "a lapsed reservation is forgotten",
		wrap: onDue(func(ctx context.Context, s stores.Store, q stores.DueQuery) ([]stores.Retry, error) {
			due, err := s.Due(ctx, q)
			for i := range due {
				due[i].Suspect = false
			}
			return due, err
		}),
		fails: []string{"due/lapsed reservations are suspect"},
	},
	{
		name: "one row that cannot be read stops the batch",
		wrap: onDue(func(ctx context.Context, s stores.Store, q stores.DueQuery) ([]stores.Retry, error) {
			due, err := s.Due(ctx, q)
			for i := range due {
				err = errors.Join(err, due[i].Err)
			}
			if err != nil {
				return nil, err
			}
			return due, nil
		}),
		fails: []string{"due/one unreadable row"},
	},
	{
		name:  "Release releases nothing",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return keepsReserved{s} },
		fails: []string{"due/release"},
	},
	{
		name: "order keys are forgotten",
		wrap: onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			f.OrderKey = nil
			return s.Record(ctx, f)
		}),
		fails: []string{"order/behind an earlier message", "order/followers come one after the other", "order/many followers hide nobody", "order/workers and deliveries at once"},
		limit: 4 * time.Second,
	},
	{
		name: "claims do not look at order keys",
		wrap: onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			c.OrderKey = nil
			return s.Begin(ctx, c)
		}),
		fails: []string{"order/behind an earlier message", "order/order keys byte by byte", "order/workers and deliveries at once"},
	},
	{
		name: "what the broker has lost keeps its order",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onBegin(func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
				if _, err := admin.ExecContext(ctx, "UPDATE millpond_failure SET order_until = 9223372036854775807 WHERE placement = 2"); err != nil {
					return nil, stores.Verdict{}, err
				}
				return s.Begin(ctx, c)
			})(s, admin)
		},
		limit: 3 * time.Second,
		fails: []string{"order/a message the broker has lost lets go"},
	},
	{
		name:  "what is retried without content keeps its order",
		wrap:  onChange("", "UPDATE millpond_failure SET order_key = CAST('order' AS BLOB), order_until = 9223372036854775807 WHERE placement = 2"),
		fails: []string{"order/retried without content"},
	},
	{
		name: "the wait behind others is a part of the age",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store {
			return onRecord(func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
				version, err := s.Record(ctx, f)
				if err == nil {
					_, err = admin.ExecContext(ctx, "UPDATE millpond_failure SET budget_at = first_at")
				}
				return version, err
			})(s, admin)
		},
		fails: []string{"order/the age of one that waited"},
	},
	{
		name:  "a text is looked for as a pattern",
		wrap:  func(s stores.Store, admin *sql.DB) stores.Store { return likes{s, admin} },
		fails: []string{"inspect/filters"},
	},
	{
		name:  "pages begin with their last message again",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return repeats{s} },
		fails: []string{"inspect/pages", "decide/pages and filters"},
	},
	{
		name:  "Change leaves no audit",
		wrap:  onChange("", "DELETE FROM millpond_audit"),
		fails: []string{"change/audit", "change/in batches", "change/two operators at once"},
	},
	{
		name:  "Change carries out more than it was asked for",
		wrap:  onChange("", "UPDATE millpond_failure SET redrives = redrives + 1"),
		fails: []string{"change/retry", "change/in batches", "change/two operators at once"},
	},
	{
		name:  "a retry keeps the old budget",
		wrap:  onChange("", "UPDATE millpond_failure SET attempts = 5 WHERE status = 3"),
		fails: []string{"change/retry"},
	},
	{
		name:  "a released message runs under its old id",
		wrap:  func(s stores.Store, admin *sql.DB) stores.Store { return releases{s, admin} },
		fails: []string{"decide/release runs under an id of its own", "decide/release keeps content byte by byte"},
	},
	{
		name:  "a decision can be carried out twice",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return decidesAgain{s} },
		fails: []string{"decide/only once", "decide/two operators at once"},
	},
}
