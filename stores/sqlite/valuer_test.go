package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"
)

type brokenValue struct{}

func (brokenValue) Value() (driver.Value, error) { panic("a value") }

// An argument that panics fails its message. The writer goes on to the others.
func TestAnArgumentThatPanicsDoesNotKeepTheWriter(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(tx *sql.Tx) error{
		"Exec": func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO effects VALUES (?)", brokenValue{})
			return err
		},
		"QueryRow": func(tx *sql.Tx) error {
			var note string
			return tx.QueryRow("INSERT INTO effects VALUES (?) RETURNING note", brokenValue{}).Scan(&note)
		},
		"a prepared query": func(tx *sql.Tx) error {
			s, err := tx.Prepare("SELECT ?")
			if err != nil {
				return err
			}
			defer s.Close()
			var note string
			return s.QueryRow(brokenValue{}).Scan(&note)
		},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := open(t)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				over := make(chan struct{})
				if shared {
					b, members := o.beginBatch("broken", "kept")
					go func() {
						defer close(over)
						refused(t, o.txOf(members[0]), use)
						_ = members[0].Leave(ctx)
						_ = members[1].Keep(ctx)
						_ = b.Commit(ctx)
					}()
				} else {
					a := o.begin(claimOf("broken"))
					tx, _ := TxFromContext(a.Context(t.Context()))
					go func() {
						defer close(over)
						refused(t, tx, use)
						_ = a.Rollback(ctx)
					}()
				}
				select {
				case <-over:
				case <-ctx.Done():
					t.Fatal("the writer is kept")
				}
				o.complete(claimOf("broken"))
			})
		}
	}
}

func refused(t *testing.T, tx *sql.Tx, use func(tx *sql.Tx) error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("it panicked: %v", r)
		}
	}()
	if err := use(tx); err == nil {
		t.Error("no error")
	}
}
