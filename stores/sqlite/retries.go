package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Due implements stores.Retries. It takes the writer only if there is something due.
func (s *Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	consumer, err := s.consumer(q.Consumer)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 || q.Reserve <= 0 {
		return nil, errors.New("sqlite: due: Limit and Reserve must be positive")
	}
	var due []stores.Retry
	found, err := s.anyDue(ctx, consumer)
	if err == nil && found {
		err = s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
			due, err = s.reserve(ctx, tx, consumer, q)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: due: %w", s.explain(ctx, err))
	}
	return due, nil
}

// anyDue looks for a message that is due and whose handler does not run.
func (s *Store) anyDue(ctx context.Context, consumer int64) (found bool, err error) {
	err = sqlstore.Each(ctx, s.reader, s.sql.failures.due, []any{consumer, s.flights.count() + 1}, func(scan sqlstore.Scan) error {
		var id []byte
		if err := scan(&id); err != nil {
			return err
		}
		_, open := s.flights.state(flight{consumer, string(id)})
		found = found || !open
		return nil
	})
	return found, err
}

// maxPages bounds how long the writer is kept by rows that turn out not to be due.
const maxPages = 8

// reserve goes through the due rows. Those that wait behind another one are put off
// until that one's time, so that they are not met again and again.
func (s *Store) reserve(ctx context.Context, tx *sql.Tx, consumer int64, q stores.DueQuery) ([]stores.Retry, error) {
	var due []stores.Retry
	for range maxPages {
		limit := q.Limit - len(due)
		p, err := s.page(ctx, tx, consumer, limit)
		if err != nil {
			return nil, err
		}
		if len(p.free) > 0 {
			if _, err := tx.ExecContext(ctx, s.sql.failures.reserve, q.Reserve.Microseconds(), array(p.free)); err != nil {
				return nil, err
			}
		}
		if len(p.behind) > 0 {
			if _, err := tx.ExecContext(ctx, s.sql.failures.push, array(p.behind)); err != nil {
				return nil, err
			}
		}
		loaded, err := s.load(ctx, tx, q.Consumer, p)
		if err != nil {
			return nil, err
		}
		due = append(due, loaded...)
		if p.rows < limit || len(due) == q.Limit {
			break
		}
	}
	return due, nil
}

// duePage is a part of the due rows, by their numbers.
type duePage struct {
	rows         int
	free, behind []int64
	suspect      map[int64]bool
}

func (s *Store) page(ctx context.Context, tx *sql.Tx, consumer int64, limit int) (duePage, error) {
	p := duePage{suspect: make(map[int64]bool)}
	err := sqlstore.Each(ctx, tx, s.sql.failures.page, []any{consumer, limit}, func(scan sqlstore.Scan) error {
		var (
			number          int64
			suspect, behind bool
		)
		if err := scan(&number, &suspect, &behind); err != nil {
			return err
		}
		p.rows++
		if behind {
			p.behind = append(p.behind, number)
			return nil
		}
		p.free = append(p.free, number)
		p.suspect[number] = suspect
		return nil
	})
	return p, err
}

// load reads the reserved rows of a page, in its order.
func (s *Store) load(ctx context.Context, tx *sql.Tx, c stores.Consumer, p duePage) ([]stores.Retry, error) {
	if len(p.free) == 0 {
		return nil, nil
	}
	loaded := make(map[int64]stores.Retry, len(p.free))
	err := sqlstore.Each(ctx, tx, s.sql.failures.load, []any{array(p.free)}, func(scan sqlstore.Scan) error {
		r, err := scanRetry(scan)
		if err != nil {
			return err
		}
		r.Key.Consumer = c
		number, _ := sqlstore.ParseVersion(r.State.Version)
		r.Suspect = p.suspect[number]
		loaded[number] = r
		return nil
	})
	due := make([]stores.Retry, 0, len(loaded))
	for _, number := range p.free {
		if r, ok := loaded[number]; ok {
			due = append(due, r)
		}
	}
	return due, err
}

// scanRetry reads a row of the load statement.
func scanRetry(scan sqlstore.Scan) (stores.Retry, error) {
	var (
		r                                  stores.Retry
		state                              [numStateColumns]any
		fingerprint, trace, uuid, metadata []byte
	)
	into := make([]any, 0, len(state)+12)
	for i := range state {
		into = append(into, &state[i])
	}
	into = append(into, &r.Key.ID, &fingerprint, &trace, &r.Topic, &r.Coordinates, &r.OrderKey,
		&r.Content.Codec, &uuid, &metadata, &r.Content.Payload, &r.LastError, &r.Cause)
	if err := scan(into...); err != nil {
		return r, err
	}
	r.State = stateOf(state[:])
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // one of a later version cannot be compared
	copy(r.TraceParent[:], trace)
	r.Content.State = r.State.Content
	r.Content.UUID = string(uuid)
	r.Content.Metadata, r.Err = sqlstore.DecodeMetadata(metadata)
	return r, nil
}

// Release implements stores.Retries. Messages whose handlers run are left alone.
func (s *Store) Release(ctx context.Context, reserved []stores.Retry) error {
	type place struct {
		consumer int64
		stores.Retry
	}
	places := make([]place, 0, len(reserved))
	for _, r := range reserved {
		consumer, err := s.consumerOf(r.Key)
		if err != nil {
			return err
		}
		if _, open := s.flights.state(flight{consumer, string(r.Key.ID)}); !open {
			places = append(places, place{consumer, r})
		}
	}
	if len(places) == 0 {
		return nil
	}
	err := s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
		for _, p := range places {
			number, revision := sqlstore.ParseVersion(p.State.Version)
			if _, err := tx.ExecContext(ctx, s.sql.failures.release, p.consumer, p.Key.ID, number, revision); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sqlite: release: %w", s.explain(ctx, err))
	}
	return nil
}

// Backlog implements stores.Retries.
func (s *Store) Backlog(ctx context.Context, limit int) ([]stores.Backlog, error) {
	backlog, err := sqlstore.List(ctx, s.reader, s.sql.failures.backlog, []any{limit}, func(scan sqlstore.Scan) (b stores.Backlog, err error) {
		var oldest int64
		err = scan(&b.Consumer.Service, &b.Consumer.Handler, &b.Due, &oldest)
		b.Oldest = time.Duration(oldest) * time.Microsecond
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: backlog: %w", s.explain(ctx, err))
	}
	return backlog, nil
}
