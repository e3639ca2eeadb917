package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	relayPlain    = "relay"
	relayKeyed    = "relay, 5,000 order keys"
	relayHistory  = "relay, into an empty history"
	relayArchive  = "relay, into a large history"
	relaySnapshot = "relay, an old snapshot held"
)

const (
	manyKeys    = 5000
	relayLonger = 5 // cells than others: a relay begins with its leases
	relayLeast  = 2000

	relayConnections = 8
)

// relaying is what is relayed in a cell, and where to.
type relaying struct {
	db    *database
	clean func(context.Context) error
	keys  int // order keys that the outputs share; 0: they have none
	keep  bool
	to    openPublisher
	held  bool // another session holds a snapshot from before the outputs
}

// job writes outputs, and readies a relay that publishes them. The clock runs from its start to
// the broker's answer for the last one.
func (r relaying) job(ctx context.Context, _, n int) (_ *job, err error) {
	if err := r.clean(ctx); err != nil {
		return nil, err
	}
	release := func() error { return nil }
	if r.held {
		if release, err = r.db.holdSnapshot(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.db.write(ctx, n, r.keys); err != nil {
		return nil, errors.Join(err, release())
	}
	store, err := r.db.store(ctx, relayConnections)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	p, end, err := r.to(ctx)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	taken := newTaken(p, n)
	relay, err := outbox.New(store, outbox.Config{Publishers: map[string]message.Publisher{"": taken}, Keep: r.keep, AlarmSize: 1_000_000})
	if err != nil {
		return nil, errors.Join(err, release(), end())
	}
	return &job{
		run: func() (time.Duration, []time.Duration, error) {
			var running background
			start := time.Now()
			running.start(ctx, relay.Run)
			err := taken.wait(ctx)
			took := taken.last.Sub(start)
			return took, nil, errors.Join(err, running.end()) // it writes down what it has published
		},
		close: func() error { return errors.Join(release(), r.db.allRelayed(ctx), store.Close(), end()) },
	}, nil
}

// taken counts what a publisher was given and took.
type taken struct {
	brokers.EachPublisher

	want int
	got  atomic.Int64
	done chan struct{}
	last time.Time // when all was taken
}

func newTaken(p message.Publisher, want int) *taken {
	each, ok := p.(brokers.EachPublisher)
	if !ok {
		panic("bench: the publisher has no PublishEach") // all of package brokers have
	}
	return &taken{EachPublisher: each, want: want, done: make(chan struct{})}
}

func (t *taken) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	errs := t.EachPublisher.PublishEach(ctx, topic, messages...)
	n := 0
	for _, err := range errs {
		if err == nil {
			n++
		}
	}
	if got := int(t.got.Add(int64(n))); got >= t.want && got-n < t.want {
		t.last = time.Now()
		close(t.done)
	}
	return errs
}

func (t *taken) wait(ctx context.Context) error {
	const atMost = time.Minute
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("%d of %d messages were published after %v", t.got.Load(), t.want, atMost)
	}
}

// toMemory opens a broker in memory, which nobody listens to.
func toMemory(context.Context) (message.Publisher, func() error, error) {
	b, err := memory.New(memory.Config{Capacity: 1 << 24})
	if err != nil {
		return nil, nil, err
	}
	p, err := b.Publisher(brokers.PublisherConfig{})
	return p, b.Close, err
}

// write writes n outputs that share so many order keys: one by a producer, and the others like
// it.
func (db *database) write(ctx context.Context, n, keys int) error {
	store, err := db.store(ctx, 1)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, store.Pool(), func(tx pgx.Tx) error {
		one := newDelivery("output-0", false).msg
		if err := postgres.NewPublisher(tx, store, stores.PublisherConfig{}).Publish(outputTopic, one); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, copyOutput, n, keys)
		return err
	})
	if err != nil {
		return fmt.Errorf("write outputs: %w", err)
	}
	return nil
}

// copyOutput makes n outputs of the one that is there. Which bucket an order key has says
// whoever writes; that all of a key are in one is all that a relay needs.
const copyOutput = `WITH one AS (DELETE FROM millpond_outbox RETURNING *)
INSERT INTO millpond_outbox (bytes, bucket, destination, topic, type, codec, message_id, order_key, traceparent, metadata, payload)
SELECT one.bytes, (CASE $2::int WHEN 0 THEN i ELSE i % $2 END) % 64, one.destination, one.topic, one.type, one.codec,
	convert_to(gen_random_uuid()::text, 'UTF8'), CASE WHEN $2 > 0 THEN convert_to('order-' || (i % $2), 'UTF8') END,
	one.traceparent, one.metadata, one.payload
FROM generate_series(1, $1::int) i, one`

// holdSnapshot lets a session look at the database as it is now, until release is called.
func (db *database) holdSnapshot(ctx context.Context) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return nil, err
	}
	release = func() error { return conn.Close(ctx) }
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM effect"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

// allRelayed is an error if something is left to be published, or was refused.
func (db *database) allRelayed(ctx context.Context) error {
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	var left int
	err = pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM millpond_outbox) + (SELECT count(*) FROM millpond_outbox_failed)").Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d outputs are left", left)
	}
	return err
}

const relayAbout = "One relay with its defaults publishes outputs of about 490 bytes, which were written before, to a broker in memory. " +
	"The clock runs from its start to the answer for the last of them."

// relays measures a relay.
func relays(_ context.Context, s *site, _ options) (*group, error) {
	plain := relaying{db: s.used, clean: s.direct.emptyOutbox, to: toMemory}
	keyed := plain
	keyed.keys = manyKeys
	return &group{
		title: "PostgreSQL: relaying outputs", about: relayAbout,
		workers: []int{1}, longer: relayLonger, least: relayLeast,
		recipes: []recipe{{name: relayPlain, job: plain.job}, {name: relayKeyed, against: relayPlain, job: keyed.job}},
		server:  s.server, close: s.close,
	}, nil
}

// emptyOutbox empties the tables of a relay.
func (db *database) emptyOutbox(ctx context.Context) error {
	return db.do(ctx, "TRUNCATE millpond_outbox, millpond_outbox_history, millpond_lease")
}

// emptyOutboxOnly leaves the history as it is, but tidied up.
func (db *database) emptyOutboxOnly(ctx context.Context) error {
	return db.do(ctx, "TRUNCATE millpond_outbox, millpond_lease")
}

func (db *database) do(ctx context.Context, statements ...string) error {
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// histories measures a relay that keeps what it has published.
func histories(ctx context.Context, s *site, o options) (*group, error) {
	large, err := newDatabase(ctx, s.server)
	if err != nil {
		return nil, err
	}
	const title = "PostgreSQL: relaying outputs into a history"
	o.progress.Printf("%s: writing %d outputs into it", title, o.history)
	if err := large.writeHistory(ctx, o.history); err != nil {
		large.close()
		return nil, err
	}
	empty := relaying{db: s.used, clean: s.direct.emptyOutbox, keep: true, to: toMemory}
	full := relaying{db: large, clean: large.emptyOutboxOnly, keep: true, to: toMemory}
	return &group{
		title:   title,
		about:   fmt.Sprintf("%s It keeps them (Config.Keep); the large history has %d more, of 100 bytes each.", relayAbout, o.history),
		workers: []int{1}, longer: relayLonger, least: relayLeast,
		recipes: []recipe{{name: relayHistory, job: empty.job}, {name: relayArchive, against: relayHistory, job: full.job}},
		server:  s.server, close: func() { large.close(); s.close() },
	}, nil
}

// writeHistory writes n published outputs, as of the days before.
func (db *database) writeHistory(ctx context.Context, n int) error {
	const atOnce = 500_000
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	for from := 0; from < n; from += atOnce {
		_, err := pool.Exec(ctx, `INSERT INTO millpond_outbox_history (id, created_at, published_at, bytes, bucket, attempts, destination, topic, type, codec, message_id, payload)
SELECT -i::bigint, now() - interval '1 day', now() - interval '1 day' + i * interval '1 microsecond', 100, i % 64, 0, '', 'shipments', '', '',
	convert_to(gen_random_uuid()::text, 'UTF8'), convert_to(repeat('x', 100), 'UTF8')
FROM generate_series($1::int, $2::int) i`, from+1, min(from+atOnce, n))
		if err != nil {
			return fmt.Errorf("fill the history: %w", err)
		}
	}
	return db.do(ctx, "VACUUM ANALYZE millpond_outbox_history")
}

// snapshots measures a relay while another session holds an old snapshot.
func snapshots(_ context.Context, s *site, o options) (*group, error) {
	without := relaying{db: s.used, clean: s.direct.emptyOutbox, to: toMemory}
	with := without
	with.held = true
	return &group{
		title:   "PostgreSQL: relaying outputs under an old snapshot",
		about:   fmt.Sprintf("%s There are at least %d of them. Another session holds a snapshot from before they were written, so that rows that are deleted stay.", relayAbout, o.backlog),
		workers: []int{1}, longer: relayLonger, least: o.backlog,
		recipes: []recipe{{name: relayPlain, job: without.job}, {name: relaySnapshot, against: relayPlain, job: with.job}},
		server:  s.server, close: s.close,
	}, nil
}
