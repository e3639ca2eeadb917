package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
)

var (
	_ stores.Examiner = (*Store)(nil)
	_ stores.Granter  = (*Store)(nil)
)

// Examine implements stores.Examiner.
func (s *Store) Examine(ctx context.Context, e stores.Examination) ([]stores.Finding, error) {
	findings, err := s.contract.Examine(ctx, e)
	if err != nil || s.pool.Config().MaxConns < 2 {
		return findings, err
	}
	shared, err := s.sharesSessions(ctx)
	switch {
	case err != nil:
		findings = append(findings, stores.Finding{
			Check: "pooler", Severity: stores.SeverityNote,
			What: "this could not be checked: " + err.Error(), Why: "whether a pooler in transaction mode is in between is unknown",
		})
	case shared && !s.pooled:
		findings = append(findings, stores.Finding{
			Check: "pooler", Severity: stores.SeverityWarning,
			What: "a pooler in transaction mode is in between", Why: "it keeps no prepared statements and no LISTEN: statements fail now and then, and nothing wakes retries",
			Fix: "add pgbouncer=transaction to the URL, or connect to the server itself",
		})
	case shared:
		findings = append(findings, stores.Finding{
			Check: "pooler", Severity: stores.SeverityNote,
			What: "a pooler in transaction mode is in between", Why: "retries are polled for, as nothing wakes them, and what a handler sets in its session may stay for others",
			Fix: "connect to the server itself, or to a pooler in session mode",
		})
	}
	return findings, nil
}

// sharesSessions reports whether two connections, one after the other, get the same session of the
// server.
func (s *Store) sharesSessions(ctx context.Context) (shared bool, err error) {
	first, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer first.Release()
	second, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer second.Release()
	const tries = 4 // a pooler may use several free sessions in turn
	seen := make(map[int64]*pgx.Conn)
	for _, conn := range []*pgx.Conn{first.Conn(), second.Conn()} {
		for range tries {
			var pid int64
			if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()::pg_catalog.int8", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
				return false, err
			}
			if other, ok := seen[pid]; ok && other != conn {
				return true, nil
			}
			seen[pid] = conn
		}
	}
	return false, nil
}
