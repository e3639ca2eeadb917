package tables

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// proveTimeout bounds the check, which is only a precaution.
const proveTimeout = 2 * time.Second

// errUndo rolls a transaction back.
var errUndo = errors.New("undo")

const (
	tryLock    = "SELECT pg_try_advisory_xact_lock($1)"
	insertKey  = "INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status) VALUES (0, $1, 2) ON CONFLICT DO NOTHING"
	waitNoLock = "SELECT set_config('lock_timeout', '10', true)"
)

// prove checks, on two connections, that a lock locks, and that a key counts as taken while another
// transaction inserts it. Servers that only speak the protocol accept both statements but let two
// handlers run. It leaves nothing behind. If the check is impossible, for example without the right
// to write, it returns nil.
func (t *Tables) prove(ctx context.Context, names sqlstore.Names) error {
	distributed, err := t.distributed(ctx)
	if err == nil && len(distributed) > 0 {
		return fmt.Errorf("%w: Citus has distributed %s, where a lock holds on one node alone, so two handlers would run: SELECT undistribute_table('…') for each of millpond's tables", sqlstore.ErrUnusable, strings.Join(distributed, ", "))
	}
	if !t.db.Spare() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	lock := int64(binary.BigEndian.Uint64(id)) //nolint:gosec // the bits are what matters
	insert := Statement{Text: expand(names, insertKey), Args: []any{id}}
	wrong := ""
	err = t.db.InTx(ctx, func(first Querier) error {
		if held, err := tries(ctx, first, lock); err != nil || !held {
			return cmp.Or(err, errUndo)
		}
		if _, err := first.Send(ctx, insert); err != nil {
			return err
		}
		err := t.db.InTx(ctx, func(second Querier) error {
			if held, err := tries(ctx, second, lock); err == nil && held {
				wrong = "it gives one lock to two connections, so two handlers would run"
				return errUndo
			}
			if _, err := second.Send(ctx, Statement{Text: qualify(waitNoLock)}); err != nil {
				return err
			}
			if n, err := second.Send(ctx, insert); err == nil && n > 0 {
				wrong = "it inserts a key that another transaction is inserting, so two handlers would run"
			}
			return errUndo
		})
		if _, lost := first.Send(ctx, Statement{Text: qualify(waitNoLock)}); lost != nil {
			wrong = "" // its locks are lost as well
		}
		return cmp.Or(err, errUndo)
	})
	if lacks(err) {
		wrong = fmt.Sprintf("it lacks what claims are made of (%v)", err)
	}
	if err != nil && strings.Contains(err.Error(), "statement pooling") { // PgBouncer's words
		return fmt.Errorf("%w: a pooler in statement mode is in between, which has no transactions: set its pool_mode to session or transaction", sqlstore.ErrUnusable)
	}
	if wrong != "" {
		return fmt.Errorf("%w: %s: use PostgreSQL 13 or later", sqlstore.ErrUnusable, wrong)
	}
	return nil
}

// lacks reports whether a server does not know a function or a clause.
func lacks(err error) bool {
	switch sqlState(err) {
	case undefinedFunction, syntaxError, notSupported:
		return true
	}
	return false
}

func tries(ctx context.Context, on Querier, lock int64) (held bool, err error) {
	found := false
	_, err = on.Send(ctx, Statement{Text: qualify(tryLock), Args: []any{lock}, Read: first(&found, &held)})
	return held, err
}
