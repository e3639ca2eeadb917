package tables

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
)

// learn asks the server once for what the store needs to know. It runs before the first consumer is
// registered, and so before anything else, and again when the server may be another one.
func (t *Tables) learn(ctx context.Context, again bool) error {
	t.learning.Lock()
	defer t.learning.Unlock()
	if t.dialect != nil && !again {
		return nil
	}
	var (
		found           bool
		h               home
		now             serverSettings
		idle, statement int64
	)
	where, args := t.homeIs()
	_, err := t.db.Send(ctx, Statement{
		//nolint:unqueryvet // home is what the subquery names, one by one
		Text: qualify("SELECT home.*, " + settings + " FROM (" + where + ") home"), Args: args,
		Read: first(&found, append(h.dest(), &idle, &statement, &now.isolation, &now.locks, &now.fsync, &now.synchronousCommit, &now.fullPageWrites)...),
	})
	switch {
	case err != nil:
		return err
	case !found:
		return stores.ErrNotMigrated
	}
	if err := h.check(); err != nil {
		return err
	}
	now.limits = serverLimits{idle: time.Duration(idle) * time.Millisecond, statement: time.Duration(statement) * time.Millisecond}
	before := t.settings.Swap(&now)
	if before == nil || before.durability != now.durability {
		now.warn(t.log)
	}
	if t.dialect != nil {
		return nil
	}
	// From now on table names are qualified: a handler may set the search_path of its transaction,
	// or leave a connection with another one.
	names := t.inSchema(h.schema)
	if !t.anyServer {
		if err := t.prove(ctx, names); err != nil {
			return err
		}
	}
	t.sql, t.dialect = newStatements(names), newDialect(names)
	t.lockPrefix = append([]byte(names.Table("inbox")), 0)
	t.channel = channelOf(names)
	return nil
}

// serverSettings may change with a failover.
type serverSettings struct {
	limits    serverLimits
	isolation pgx.TxIsoLevel // the default of transactions
	locks     int64          // the server's room for locks
	durability
}

const settings = `(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout'),
(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'),
current_setting('default_transaction_isolation'),
(current_setting('max_locks_per_transaction')::bigint * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)),
current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')`

// serverLimits are the connections' own timeouts, which a claim's bound must not raise; 0 means
// none.
type serverLimits struct{ idle, statement time.Duration }

// keep reports whether the connections' own timeouts enforce the bound.
func (l serverLimits) keep(bound time.Duration) bool {
	return bound == 0 || 0 < l.idle && l.idle <= bound && 0 < l.statement && l.statement <= bound
}

// within returns the settings for one transaction in milliseconds.
func (l serverLimits) within(bound time.Duration) (idle, statement string) {
	return milliseconds(l.idle, bound), milliseconds(l.statement, bound)
}

func milliseconds(own, bound time.Duration) string {
	if bound == 0 || own != 0 && own < bound {
		bound = own
	}
	return strconv.FormatInt(min(bound.Milliseconds(), math.MaxInt32), 10) // the settings' largest value; the inbox's own clock bounds longer times
}
