package mysql

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// openWriters has the number up to which all outputs were committed when last compared.
type openWriters struct {
	mu       sync.Mutex
	asked    time.Time
	complete int64
}

const (
	askWriters = 100 * time.Millisecond
	compared   = 2000 // rows
)

// Complete implements sqlstore.Database. Outputs that a dirty read sees, and a later clean read
// does not, are not committed yet.
func (d database) Complete(ctx context.Context) (int64, error) {
	if d.texts().tidb { // TiDB has no dirty reads
		return 0, nil
	}
	w := &d.writers
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.asked) < askWriters {
		return w.complete, nil
	}
	dirty, err := d.numbers(ctx, sql.LevelReadUncommitted, w.complete)
	if err != nil {
		return 0, err
	}
	clean, err := d.numbers(ctx, sql.LevelReadCommitted, w.complete)
	if err != nil {
		return 0, err
	}
	committed := make(map[int64]bool, len(clean))
	for _, number := range clean {
		committed[number] = true
	}
	w.asked = time.Now()
	for _, number := range dirty {
		if !committed[number] {
			break
		}
		w.complete = number
	}
	return w.complete, nil
}

func (d database) numbers(ctx context.Context, level sql.IsolationLevel, after int64) (numbers []int64, err error) {
	conn, err := d.connection(ctx, d.db)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = sqlstore.Send(ctx, tx, sqlstore.Statement{
		Text: d.dialect.Fixed(`SELECT id FROM {schema.}{prefix}outbox WHERE id > ? ORDER BY id LIMIT ?`), Args: []any{after, compared},
		Read: func(rows sqlstore.Rows) error {
			for rows.Next() {
				var number int64
				if err := rows.Scan(&number); err != nil {
					return err
				}
				numbers = append(numbers, number)
			}
			return rows.Err()
		},
	})
	return numbers, errors.Join(err, tx.Commit())
}
