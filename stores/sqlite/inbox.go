package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/stores"
)

// lookAfter is how long a claim waits for the writer before it looks whether it needs it. So a
// completed key does not wait for another key's slow handler, and a steady load of short handlers
// causes no extra looks.
const lookAfter = 50 * time.Millisecond

// Begin implements stores.Inbox. A key in flight in this process is answered at once. Other claims
// queue for the writer, in order, until ctx ends. If another process is writing, Begin waits up to
// the busy timeout. That transaction may be about this key or any other, so then the error wraps
// stores.ErrUnavailable.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	consumer, err := s.tables.Known(c.Key)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	f := flight{consumer: consumer, id: string(c.Key.ID)}
	if !s.flights.takeOff(f) {
		return nil, stores.Verdict{Outcome: stores.InFlight}, nil
	}
	a, verdict, err := s.claim(ctx, f, c)
	if a != nil {
		return a, verdict, nil
	}
	s.flights.land(f)
	if err != nil {
		err = fmt.Errorf("sqlite: %w", s.explain(ctx, err))
	}
	return nil, verdict, err
}

func (s *Store) claim(ctx context.Context, f flight, c stores.Claim) (*attempt, stores.Verdict, error) {
	cl := &claim{Claim: c, consumer: f.consumer}
	begin := beginning{decide: func(conn *conn) error {
		err := conn.decide(cl)
		if err == nil {
			conn.handling = newHandling()
			conn.handling.begin(c.Bound)
		}
		return err
	}}
	look := func() error {
		row, err := s.lookUp(ctx, f.consumer, c.Key.ID)
		if err != nil || !row.Found {
			return err
		}
		return cl.judge(row)
	}
	tx, err := s.beginClaim(ctx, &begin, look)
	switch {
	case errors.Is(err, errTaken):
		return nil, cl.verdict, nil
	case err != nil:
		return nil, stores.Verdict{}, err
	}
	s.flights.opened(f)
	return &attempt{store: s, flight: f, tx: tx, conn: begin.conn}, cl.verdict, nil
}

// beginClaim returns a transaction while holding the writer's slot, or an error.
func (s *Store) beginClaim(ctx context.Context, b *beginning, look func() error) (*sql.Tx, error) {
	giveUp := s.writer.patience()
	err := s.writer.acquire(ctx, lookAfter)
	if errors.Is(err, errWait) {
		if err := look(); err != nil {
			return nil, err
		}
		err = s.writer.acquire(ctx, 0)
	}
	if err != nil {
		return nil, err
	}
	tx, err := s.writer.begin(ctx, b, giveUp, look)
	if err != nil {
		s.writer.release()
		return nil, err
	}
	return tx, nil
}

// explain maps a statement's error to one of the contract's.
func (s *Store) explain(ctx context.Context, err error) error {
	if s.tables.Closed() {
		return stores.ErrClosed
	}
	if isCode(err, sqlite3.SQLITE_ERROR) { // bad SQL; ours is bad only if tables are missing
		if schema := s.Validate(ctx); schema != nil {
			return schema
		}
	}
	return unavailable(tooBig(err))
}
