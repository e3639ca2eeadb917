package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
	mysqlstore "github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// Names of recipes.
const (
	purgeFast = "purge, full speed"

	claimsAlone  = "millpond, nothing is purged"
	claimsPurged = "millpond, a purge at its pace"

	claimsEmpty       = "millpond, empty table"
	claimsFull        = "millpond, many completed"
	claimsEmptyRandom = "millpond, empty table, random ids"
	claimsFullRandom  = "millpond, many completed, random ids"
)

const (
	purgeLeast  = 2000 // rows of a cell
	purgeRows   = 1000 // of a range, and
	purgeRate   = 5000 // a second: the defaults of a sweeper
	purgeLonger = 10
)

// oldAge is how long ago the rows were completed that are purged.
const oldAge = 8 * 24 * time.Hour

// purging is a store with completed rows that are old.
type purging struct {
	store stores.Store
	clean func(context.Context) error
	fill  func(ctx context.Context, n int) error
	close func() error
}

// job purges n rows, range by range, without a pause.
func (p purging) job(ctx context.Context, n int) (*job, error) {
	err := p.store.Register(ctx, stores.Registration{Consumer: consumer, Topic: topicName})
	if err == nil {
		err = p.clean(ctx)
	}
	if err == nil {
		err = p.fill(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	purge, err := announced(ctx, p.store)
	if err != nil {
		return nil, err
	}
	deleted := 0
	return &job{
		run: func() (time.Duration, []time.Duration, error) {
			start := time.Now()
			for after := "-"; after != ""; {
				r, err := purge(ctx, after)
				if err != nil {
					return 0, nil, err
				}
				deleted, after = deleted+r.Deleted, r.Next
			}
			return time.Since(start), nil, nil
		},
		close: func() error {
			if err := p.close(); err != nil || deleted == n {
				return err
			}
			return fmt.Errorf("%d of %d rows were purged", deleted, n)
		},
	}, nil
}

// announced announces what is old, and returns what purges one range of it; "-" is the first.
func announced(ctx context.Context, store stores.Store) (func(ctx context.Context, after string) (stores.PurgeRange, error), error) {
	purger, ok := store.(stores.Purger)
	if !ok {
		return nil, errors.New("the store cannot purge")
	}
	before := time.Now().Add(-oldAge / 2)
	q := stores.PurgeQuery{Kind: stores.PurgeCompleted, Limits: []stores.PurgeLimit{{Consumer: consumer, Before: before}}, Rows: purgeRows}
	return func(ctx context.Context, after string) (stores.PurgeRange, error) {
		q := q
		if after != "-" {
			q.After = after
		}
		return purger.Purge(ctx, q)
	}, purger.Announce(ctx, consumer, before)
}

const purgeAbout = "Ranges of about 1,000 rows, one commit each, one after the other, without the pauses of a sweeper and without an archive."

func (db *database) purging(ctx context.Context) (p purging, err error) {
	store, err := db.store(ctx, 1)
	return purging{
		store: store, clean: db.truncate, close: func() error { return nil },
		fill: func(ctx context.Context, n int) error { return db.fillInbox(ctx, n, orderedIDs) },
	}, err
}

// Ids of rows, as SQL of their numbers n.
const (
	orderedIDs = `decode('7523' || lpad(to_hex((extract(epoch from now() - interval '8 days') * 1000)::bigint + n), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15), 'hex')`
	randomIDs  = `decode('7523' || replace(gen_random_uuid()::text, '-', ''), 'hex')`
)

// fillInbox adds n completed rows to the inbox of the one consumer.
func (db *database) fillInbox(ctx context.Context, n int, ids string) error {
	const atOnce = 500_000
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	for from := 0; from < n; from += atOnce {
		if _, err := pool.Exec(ctx, `INSERT INTO millpond_inbox (consumer, message_id, status, fingerprint, completed_at)
SELECT c.id, `+ids+`, 2, decode(repeat('01', 34), 'hex'), now() - interval '8 days' FROM millpond_consumer c, generate_series($1::int, $2::int) n`,
			from+1, min(from+atOnce, n)); err != nil {
			return fmt.Errorf("fill the inbox: %w", err)
		}
	}
	return db.do(ctx, "VACUUM ANALYZE millpond_inbox")
}

// purges measures how fast PostgreSQL purges, and what that costs claims.
func purges(ctx context.Context, s *site, o options) (*group, error) {
	fast, err := s.direct.purging(ctx)
	if err != nil {
		return nil, err
	}
	beside := besidePurge{db: s.used}
	return &group{
		title:   "PostgreSQL: a purge, and claims beside it",
		about:   purgeAbout + " Beside claims it keeps to 5,000 rows a second; both have as many old rows in the table.",
		workers: []int{goalWorkers}, longer: purgeLonger, least: purgeLeast,
		recipes: []recipe{
			{name: purgeFast, job: func(ctx context.Context, _, n int) (*job, error) { return fast.job(ctx, n) }},
			{name: claimsAlone, job: beside.job},
			{name: claimsPurged, against: claimsAlone, job: besidePurge{db: s.used, purges: true}.job},
		},
		server: s.server, sharedCPU: true, close: s.close,
	}, nil
}

// besidePurge are claims, with a purge beside them or without.
type besidePurge struct {
	db     *database
	purges bool
}

func (b besidePurge) job(ctx context.Context, workers, n int) (*job, error) {
	store, err := b.db.store(ctx, 1)
	if err == nil {
		err = store.Register(ctx, stores.Registration{Consumer: consumer, Topic: topicName})
	}
	if err == nil {
		err = b.db.truncate(ctx)
	}
	if err == nil { // more than a purge deletes meanwhile
		err = b.db.fillInbox(ctx, 20*n, orderedIDs)
	}
	if err != nil {
		return nil, err
	}
	purge, err := announced(ctx, store)
	if err != nil {
		return nil, err
	}
	h, err := millpond(b.db, 0)(ctx, workers)
	if err != nil {
		return nil, err
	}
	d, err := newRouted(ctx, h, workers)
	if err != nil {
		return nil, err
	}
	messages := newMessages(&recipe{}, n)
	return &job{
		run: func() (time.Duration, []time.Duration, error) {
			var running background
			if b.purges {
				running.start(ctx, func(ctx context.Context) error { return atPace(ctx, purge) })
			}
			took, latencies, err := d.run(messages, n)
			return took, latencies, errors.Join(err, running.end())
		},
		close: d.close,
	}, nil
}

// atPace purges at a sweeper's rate, with its pauses, until ctx ends.
func atPace(ctx context.Context, purge func(context.Context, string) (stores.PurgeRange, error)) error {
	for after := "-"; ; {
		begun := time.Now()
		r, err := purge(ctx, after)
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return err
		}
		if after = r.Next; after == "" {
			after = "-"
		}
		spent := time.Since(begun)
		if !pause.Sleep(ctx, max(spent, time.Duration(r.Deleted)*time.Second/purgeRate-spent)) {
			return nil
		}
	}
}

// manyCompleted measures claims into a table of many completed rows.
func manyCompleted(ctx context.Context, s *site, o options) (_ *group, err error) {
	g := &group{
		title: "PostgreSQL: claims into a table of many completed rows", about: fmt.Sprintf("The large tables have %d rows. Ids are ordered by time (UUIDv7), or random.", o.completed),
		workers: []int{goalWorkers}, server: s.server, deliveries: idsOf,
	}
	databases := []*database{s.used}
	g.close = func() {
		for _, db := range databases[1:] {
			db.close()
		}
		s.close()
	}
	for _, ids := range []string{orderedIDs, randomIDs} {
		large, err := newDatabase(ctx, s.server)
		if err != nil {
			return nil, err
		}
		databases = append(databases, large)
		store, err := large.store(ctx, 1)
		if err == nil {
			err = store.Register(ctx, stores.Registration{Consumer: consumer, Topic: topicName})
		}
		o.progress.Printf("%s: writing %d rows", g.title, o.completed)
		if err == nil {
			err = large.fillInbox(ctx, o.completed, ids)
		}
		if err != nil {
			return nil, err
		}
	}
	g.recipes = []recipe{
		{name: claimsEmpty, routed: true, open: millpond(s.used, 0)},
		{name: claimsFull, against: claimsEmpty, routed: true, open: millpond(databases[1], 0)},
		{name: claimsEmptyRandom, routed: true, open: millpond(s.used, 0)},
		{name: claimsFullRandom, against: claimsEmptyRandom, routed: true, open: millpond(databases[2], 0)},
	}
	g.reset = s.direct.truncate
	return g, nil
}

// idsOf are messages whose ids are as a recipe says.
func idsOf(r *recipe, n int) load {
	if r.name == claimsEmptyRandom || r.name == claimsFullRandom {
		return newMessages(r, n)
	}
	l := load{deliveries: make([]delivery, n)}
	for i := range l.deliveries {
		l.deliveries[i] = newDelivery(uuid.Must(uuid.NewV7()).String(), r.suspect)
	}
	return l
}

// measurePurgeMySQL measures how fast MariaDB purges.
func (r *report) measurePurgeMySQL(ctx context.Context, o options) error {
	return r.onMariaDB(ctx, o, func(m *mariadb) *group {
		return &group{
			name: "purge-mysql", title: "MariaDB: a purge", about: purgeAbout,
			workers: []int{1}, longer: purgeLonger, least: purgeLeast, sharedCPU: true, close: func() {},
			recipes: []recipe{{name: purgeFast, job: func(ctx context.Context, _, n int) (*job, error) {
				store, err := mysqlstore.Open(ctx, m.url)
				if err != nil {
					return nil, err
				}
				return purging{store: store, clean: m.reset, close: store.Close, fill: func(ctx context.Context, n int) error {
					_, err := m.admin.ExecContext(ctx, fmt.Sprintf(`INSERT INTO millpond_inbox (consumer, message_id, status, fingerprint, completed_at)
SELECT c.id, UNHEX(CONCAT('7523', LPAD(HEX(1763000000000 + n.seq), 12, '0'), '70008000000000000000')), 2, UNHEX(REPEAT('01', 34)), (UNIX_TIMESTAMP() - 691200) * 1000000
FROM millpond_consumer c, seq_1_to_%d n`, n))
					return err
				}}.job(ctx, n)
			}}},
		}
	})
}

// purgesSQLite measures how fast SQLite purges, on files below dir.
func purgesSQLite(dir string) *group {
	return &group{
		name: "purge-sqlite", title: "SQLite: a purge, every commit flushed", about: purgeAbout,
		workers: []int{1}, longer: purgeLonger, least: purgeLeast, sharedCPU: true, close: func() {},
		recipes: []recipe{{name: purgeFast, job: func(ctx context.Context, _, n int) (*job, error) {
			dir, err := os.MkdirTemp(dir, "purge-")
			if err != nil {
				return nil, err
			}
			store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "purge.db"))
			if err != nil {
				return nil, err
			}
			return purging{
				store: store, clean: func(context.Context) error { return nil }, close: func() error { return errors.Join(store.Close(), os.RemoveAll(dir)) },
				fill: func(ctx context.Context, n int) error { return fillSQLite(ctx, store.DB(), n) },
			}.job(ctx, n)
		}}},
	}
}

func fillSQLite(ctx context.Context, db *sql.DB, n int) error {
	_, err := db.ExecContext(ctx, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO millpond_inbox (consumer, message_id, status, fingerprint, completed_at)
SELECT c.id, CAST(printf('u#%016d', n.i) AS BLOB), 2, zeroblob(34), (unixepoch() - 691200) * 1000000 FROM millpond_consumer c, n`, n)
	return err
}
