package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

//go:embed procedures/*.sql
var procedureFiles embed.FS

// Procedures returns the statements that create the stored procedures for MySQL, which save round
// trips for each message. Migrate creates them too if the account has CREATE ROUTINE. Services need
// EXECUTE. MariaDB needs no procedures, and TiDB accepts none.
func (s *Store) Procedures() []string {
	d := s.dialect
	if d == nil {
		d = newDialect(s.names, kind{})
	}
	var all []string
	for _, name := range procedureNames {
		file, err := procedureFiles.ReadFile("procedures/" + name + ".sql")
		if err != nil {
			panic(fmt.Sprintf("mysql: %v", err)) // a bug in this package
		}
		text := strings.NewReplacer("{look}", lookColumns+"c AND i.message_id = id", "{lost}", strconv.Itoa(claimLost),
			"{duplicate}", strconv.Itoa(duplicateEntry), "{locked}", strconv.Itoa(lockNotAvailable)).Replace(string(file))
		all = append(all, d.SQL(strings.TrimSpace(text)))
	}
	return all
}

var procedureNames = []string{"begin", "complete", "look", "emit_complete", "batch_claim", "batch_complete"}

// Migrate implements stores.Migrator. One process migrates at a time, under a lock named after the
// tables. The servers commit each statement separately; the next call continues an interrupted
// migration. A statement that changes a table gives way to transactions that use the table, because
// otherwise all others would queue behind it.
func (s *Store) Migrate(ctx context.Context) (applied []stores.Migration, err error) {
	if s.tables.Closed() {
		return nil, stores.ErrClosed
	}
	conn, err := s.connection(ctx, s.db)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = conn.Close() }()
	is, err := s.recognise(ctx, conn)
	if err != nil {
		return nil, unavailable(err)
	}
	if err := s.lockMigrations(ctx, conn); err != nil {
		return nil, unavailable(fmt.Errorf("migrate: %w", err))
	}
	defer func() {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+migrationLock+")", s.names.Table("schema")); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // closing the connection releases the lock
		}
	}()
	state, err := s.schemaState(ctx, conn)
	if err != nil {
		return nil, unavailable(err)
	}
	missing, err := s.tables.Missing(state)
	if err != nil {
		return nil, err
	}
	if applied, err = s.apply(ctx, conn, missing); err != nil {
		return nil, err
	}
	if !is.callable() {
		return applied, nil
	}
	return applied, s.createProcedures(ctx, conn)
}

// migrationLock is the name of the lock: one per set of tables in a database.
const migrationLock = "SHA2(CONCAT('millpond ', IFNULL(DATABASE(), ''), ' ', ?), 224)" // at most 64 characters

func (s *Store) lockMigrations(ctx context.Context, conn *sql.Conn) error {
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+migrationLock+", 1)", s.names.Table("schema")).Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (s *Store) apply(ctx context.Context, conn *sql.Conn, steps []stores.Migration) ([]stores.Migration, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	var wait int64
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.lock_wait_timeout").Scan(&wait); err != nil {
		return nil, unavailable(err)
	}
	if _, err := conn.ExecContext(ctx, setLockWait(1)); err != nil {
		return nil, unavailable(err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), setLockWait(wait)) }()
	for _, m := range steps {
		for _, statement := range statementsOf(m.SQL) {
			if err := givingWay(ctx, conn, statement); err != nil && !isDone(err) {
				return nil, fmt.Errorf("mysql: migration %04d_%s: %w: %w", m.Version, m.Name, stores.ErrUnavailable, err)
			}
		}
	}
	return steps, nil
}

func setLockWait(seconds int64) string {
	return fmt.Sprintf("SET SESSION lock_wait_timeout = %d", seconds)
}

// betweenWaits is how long others proceed before Migrate tries again to change a table.
const betweenWaits = time.Second

func givingWay(ctx context.Context, conn *sql.Conn, statement string) error {
	for {
		_, err := conn.ExecContext(ctx, statement)
		if number(err) != lockWaitTimeout || !pause.Sleep(ctx, betweenWaits) {
			return err
		}
	}
}

// isDone reports whether a migration's statement already ran, in a call that was interrupted later.
// A statement takes effect as a whole or not at all.
func isDone(err error) bool {
	const tableExists, columnExists, keyExists, nothingToDrop = 1050, 1060, 1061, 1091
	n := number(err)
	return n == tableExists || n == columnExists || n == keyExists || n == nothingToDrop
}

// statementsOf splits a migration into statements: see its first lines.
func statementsOf(text string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(text), ";"), ";\n\n")
}

// createProcedures creates missing procedures if the account may. Everything works without them;
// learn reports the cost.
func (s *Store) createProcedures(ctx context.Context, conn *sql.Conn) error {
	const exists, denied, noSuchDatabase = 1304, 1044, 1049
	for _, statement := range s.Procedures() {
		_, err := conn.ExecContext(ctx, statement)
		switch n := number(err); {
		case err == nil, n == exists:
		case n == denied, n == noSuchDatabase, n == 1370, n == 1142, n == 1227:
			return nil
		default:
			return unavailable(fmt.Errorf("migrate: procedures: %w", err))
		}
	}
	return nil
}

// SchemaState implements sqlstore.Database, after checking the server.
func (d database) SchemaState(ctx context.Context) (state sqlstore.SchemaState, err error) {
	err = d.on(ctx, func(conn *sql.Conn) error {
		if !d.hasLearnt() {
			if _, err := d.recognise(ctx, conn); err != nil {
				return err
			}
		}
		state, err = d.schemaState(ctx, conn)
		return err
	})
	return state, err
}

// schemaState reads the newest version. A missing table means version 0.
func (s *Store) schemaState(ctx context.Context, q querier) (state sqlstore.SchemaState, err error) {
	err = q.QueryRowContext(ctx, s.names.Expand("SELECT COALESCE(MAX(version), 0), COALESCE(MAX(compatible), 0) FROM {schema.}{prefix}schema")).
		Scan(&state.Version, &state.Compatible)
	if number(err) == noSuchTable {
		return sqlstore.SchemaState{}, nil
	}
	return state, err
}
