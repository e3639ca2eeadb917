package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

var _ stores.Examiner = (*Store)(nil)

// Examine implements stores.Examiner.
func (s *Store) Examine(ctx context.Context, e stores.Examination) ([]stores.Finding, error) {
	return s.tables.Examine(ctx, e, sqlstore.Looks{
		Server: []sqlstore.Look{{Check: "durability", At: s.lookAtDurability}, {Check: "grants", At: s.lookAtMode}, {Check: "bloat", At: s.lookAtFreePages}},
		Shape:  s.shapeThere,
	})
}

func (s *Store) lookAtDurability(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	var synchronous int
	var journal string
	if err := s.program.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if err := s.program.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return err
	}
	const full = 2
	if synchronous < full {
		add(stores.SeverityWarning, "synchronous is NORMAL", "a crash of the machine can lose messages that were acked", "synchronous=full in the URL, or leave it out")
	}
	if journal != "wal" {
		add(stores.SeverityWarning, "journal_mode is "+journal, "reads wait for the writer, and the writer for them", "PRAGMA journal_mode = WAL, on a file system of this machine")
	}
	add(stores.SeverityNote, "SQLite has one writer, and no server", "a process that is stopped in a transaction holds up all others until it goes on or dies", "")
	return nil
}

func (s *Store) lookAtMode(_ context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	const others = 0o077
	if mode := info.Mode().Perm(); mode&others != 0 {
		add(stores.SeverityNote, fmt.Sprintf("the file has the mode %04o", mode), "other users of this machine may read or change messages", "chmod 600 the file and those beside it")
	}
	return nil
}

func (s *Store) lookAtFreePages(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	var free, pages int64
	if err := s.reader.QueryRowContext(ctx, "SELECT (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_count FROM pragma_page_count)").Scan(&free, &pages); err != nil {
		return err
	}
	const many = 2500 // 10 MB
	if free > many && free > pages/2 {
		add(stores.SeverityNote, fmt.Sprintf("%d of %d pages of the file are free", free, pages), "the disk is not given back", "VACUUM, while no process uses the file")
	}
	return nil
}

// shapeThere reads the file's own list of tables.
func (s *Store) shapeThere(ctx context.Context) (sqlstore.Shape, error) {
	there := sqlstore.Shape{Tables: make(map[string][]string)}
	rows, err := s.reader.QueryContext(ctx, `SELECT m.type, m.name, coalesce(c.name, '') FROM main.sqlite_schema m
LEFT JOIN pragma_table_info(m.name) c ON m.type = 'table' WHERE m.type IN ('table', 'index')`)
	if err != nil {
		return there, err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, column string
		if err := rows.Scan(&kind, &name, &column); err != nil {
			return there, err
		}
		if kind == "index" {
			there.Indexes = append(there.Indexes, name)
		} else {
			there.Tables[name] = append(there.Tables[name], column)
		}
	}
	return there, errors.Join(rows.Close(), rows.Err())
}
