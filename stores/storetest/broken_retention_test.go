package storetest

import (
	"context"
	"database/sql"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// brokenRetentions break one rule of stores.Purger, or of claims beside a purge, each.
var brokenRetentions = []variant{
	{
		name: "the announcement comes with the delete",
		wrap: onPurge(func(p *brokenPurger) {
			later := make(map[stores.Consumer]time.Time)
			p.announce = func(_ context.Context, c stores.Consumer, through time.Time) error {
				later[c] = through
				return nil
			}
			p.purge = func(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
				for c, through := range later {
					if err := p.Purger.Announce(ctx, c, through); err != nil {
						return stores.PurgeRange{}, err
					}
				}
				return p.Purger.Purge(ctx, q)
			}
		}),
		fails: []string{"retention/nothing goes that is not announced", "retention/no older program after it"},
	},
	{
		name: "rows go that are newer than what is announced",
		wrap: onPurge(func(p *brokenPurger) {
			p.purge = func(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
				deleted := int64(0)
				for _, l := range q.Limits {
					gone, err := p.admin.ExecContext(ctx, "DELETE FROM millpond_inbox WHERE status = 2 AND completed_at <= ?", l.Before.UnixMicro())
					if err != nil {
						return stores.PurgeRange{}, err
					}
					deleted, _ = gone.RowsAffected()
				}
				return stores.PurgeRange{Deleted: int(deleted)}, nil
			}
		}),
		fails: []string{"retention/nothing goes that is not announced"},
	},
	{
		name:  "pending messages go with those that have failed",
		wrap:  beforePurge(stores.PurgeFailed, "DELETE FROM millpond_failure WHERE status = 3", "DELETE FROM millpond_inbox WHERE status = 3"),
		fails: []string{"retention/every kind, and nothing pending"},
	},
	{
		name:  "only half of a failed message goes",
		wrap:  beforePurge(stores.PurgeDiscarded, "DELETE FROM millpond_failure WHERE status = 5"),
		fails: []string{"retention/every kind, and nothing pending"},
	},
	{
		name:  "the rows of all consumers go",
		wrap:  beforePurge(stores.PurgeCompleted, "DELETE FROM millpond_inbox WHERE status = 2"),
		fails: []string{"retention/consumers are isolated", "retention/ranges"},
	},
	{
		name: "rows go before the archive has them",
		wrap: onPurge(func(p *brokenPurger) {
			p.purge = func(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
				archive, rows := q.Archive, []stores.PurgedRow(nil)
				if archive == nil {
					return p.Purger.Purge(ctx, q)
				}
				q.Archive = func(gone []stores.PurgedRow) error {
					rows = gone
					return nil
				}
				found, err := p.Purger.Purge(ctx, q)
				if err == nil {
					err = archive(rows)
				}
				return found, err
			}
		}),
		fails: []string{"retention/archive"},
	},
	{
		name: "an announcement takes back a later one",
		wrap: onPurge(func(p *brokenPurger) {
			p.announce = func(ctx context.Context, c stores.Consumer, through time.Time) error {
				if err := p.Purger.Announce(ctx, c, through); err != nil {
					return err
				}
				_, err := p.admin.ExecContext(ctx, "UPDATE millpond_consumer SET purged_through = ?", through.Add(stores.ClockMargin).UnixMicro())
				return err
			}
		}),
		fails: []string{"retention/nothing goes that is not announced"},
	},
	{
		name: "the time of a delivery is not looked at",
		wrap: onAged(func(_ context.Context, _ *brokenPurger, c *stores.Claim) (stores.Verdict, error) {
			c.Time = time.Time{}
			return stores.Verdict{}, nil
		}),
		fails: []string{"retention/what was purged is stale"},
	},
	{
		name: "what is old is stale whatever its row",
		wrap: onAged(func(ctx context.Context, p *brokenPurger, c *stores.Claim) (v stores.Verdict, err error) {
			w, err := p.Watermarks(ctx)
			for _, of := range w.Consumers {
				if of.Consumer == c.Key.Consumer && !c.Time.IsZero() && of.PurgedThrough.After(c.Time) {
					v.Outcome, v.PurgedThrough = stores.Stale, of.PurgedThrough
				}
			}
			return v, err
		}),
		fails: []string{"retention/a row decides first"},
	},
	{
		name:  "the next delivery of an erased message is kept again",
		wrap:  onChange("", "UPDATE millpond_failure SET content = 0 WHERE content = 6"),
		fails: []string{"erase/no delivery and no retry brings it back", "erase/through the inbox"},
	},
	{
		name:  "erase takes the keys, too",
		wrap:  onChange("", "DELETE FROM millpond_inbox WHERE EXISTS (SELECT 1 FROM millpond_failure f WHERE f.content = 6 AND f.message_id = millpond_inbox.message_id)"),
		fails: []string{"erase/nothing of the content is left", "erase/no delivery and no retry brings it back"},
	},
	{
		name:  "erase ends what is pending",
		wrap:  onChange("UPDATE millpond_failure SET status = 4", ""),
		fails: []string{"erase/pending messages only by name", "erase/what somebody has is left alone"},
	},
}

// brokenPurger is a store whose calls of stores.Purger can be replaced.
type brokenPurger struct {
	stores.Store
	stores.Purger
	admin    *sql.DB
	announce func(context.Context, stores.Consumer, time.Time) error
	purge    func(context.Context, stores.PurgeQuery) (stores.PurgeRange, error)
	aged     func(context.Context, *brokenPurger, *stores.Claim) (stores.Verdict, error)
}

func onPurge(breakIt func(*brokenPurger)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, admin *sql.DB) stores.Store {
		purger, _ := s.(stores.Purger)
		p := &brokenPurger{Store: s, Purger: purger, admin: admin, announce: purger.Announce, purge: purger.Purge}
		breakIt(p)
		return p
	}
}

// onAged has f change a claim, or answer it.
func onAged(f func(context.Context, *brokenPurger, *stores.Claim) (stores.Verdict, error)) func(stores.Store, *sql.DB) stores.Store {
	return onPurge(func(p *brokenPurger) { p.aged = f })
}

// beforePurge runs statements before each range of a kind is purged.
func beforePurge(kind stores.PurgeKind, statements ...string) func(stores.Store, *sql.DB) stores.Store {
	return onPurge(func(p *brokenPurger) {
		p.purge = func(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
			for _, text := range statements {
				if q.Kind != kind {
					break
				}
				if _, err := p.admin.ExecContext(ctx, text); err != nil {
					return stores.PurgeRange{}, err
				}
			}
			return p.Purger.Purge(ctx, q)
		}
	})
}

func (p *brokenPurger) Announce(ctx context.Context, c stores.Consumer, through time.Time) error {
	return p.announce(ctx, c, through)
}

func (p *brokenPurger) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	return p.purge(ctx, q)
}

func (p *brokenPurger) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	if p.aged != nil {
		if v, err := p.aged(ctx, p, &c); err != nil || v.Outcome != 0 {
			return nil, v, err
		}
	}
	return p.Store.Begin(ctx, c)
}
