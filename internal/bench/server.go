package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/testenv/postgres"
)

// server is the PostgreSQL server that the recipes use, and what it spends.
type server struct {
	*postgres.Server

	version string
	admin   *pgx.Conn
}

// settings are durable, and those of a default installation but for what would
// strike single cells at random.
var settings = map[string]string{
	"wal_level":                 "replica",
	"max_prepared_transactions": "0",
	"shared_buffers":            "128MB",
	"max_connections":           "1000", // idle ones of all recipes stay open
	"autovacuum":                "off",
	"checkpoint_timeout":        "1h",
	"max_wal_size":              "8GB",
}

func startServer(ctx context.Context) (*server, error) {
	pg, err := postgres.Start(ctx, postgres.Config{Settings: settings})
	if err != nil {
		return nil, err
	}
	s := &server{Server: pg}
	if s.admin, err = pgx.Connect(ctx, pg.URL()); err == nil {
		err = s.admin.QueryRow(ctx, "SHOW server_version").Scan(&s.version)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// spent is what a server has spent since a meter was started.
type spent struct {
	cpu     time.Duration // of all its processes
	wal     int64         // bytes
	commits int64         // transactions that wrote
}

// meter starts to measure. What the measuring itself costs is not in the result.
func (s *server) meter(ctx context.Context) (stop func(context.Context) (spent, error), err error) {
	before, err := s.log(ctx)
	if err != nil {
		return nil, err
	}
	cpuBefore, err := s.cpu()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (spent, error) {
		cpuAfter, err := s.cpu()
		if err != nil {
			return spent{}, err
		}
		after, err := s.log(ctx)
		if err != nil {
			return spent{}, err
		}
		used := spent{wal: after.wal - before.wal, commits: after.commits - before.commits}
		for pid, cpu := range cpuAfter {
			used.cpu += cpu - cpuBefore[pid]
		}
		return used, nil
	}, nil
}

// log returns the position in the write-ahead log, and how many transactions have
// been given an id, which is what those have that write.
func (s *server) log(ctx context.Context) (spent, error) {
	var at spent
	err := s.admin.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&at.wal, &at.commits)
	if err != nil {
		return at, fmt.Errorf("measure the server: %w", err)
	}
	return at, nil
}

// cpu returns the processor time of each of the server's processes.
func (s *server) cpu() (map[int]time.Duration, error) {
	pids, err := s.PIDs()
	if err != nil {
		return nil, err
	}
	times := make(map[int]time.Duration, len(pids))
	for _, pid := range pids {
		if cpu, ok := processTime(pid); ok {
			times[pid] = cpu
		}
	}
	return times, nil
}

// checkpoint writes everything out, so that no checkpoint is due for a while.
func (s *server) checkpoint(ctx context.Context) error {
	if _, err := s.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
