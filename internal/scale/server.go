package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/testenv/dynamodblocal"
	"github.com/millpond-go/millpond/internal/testenv/postgres"
)

// settings are durable.
var settings = map[string]string{"max_connections": "200", "shared_buffers": "128MB", "wal_level": "replica", "max_prepared_transactions": "0", "max_wal_size": "4GB"}

func startServer(ctx context.Context, name string) (*server, error) {
	if name == onDynamoLocal {
		s, err := dynamodblocal.Start(ctx)
		if err != nil {
			return nil, err
		}
		return &server{Close: s.Close, PIDs: s.PIDs, newDatabase: func(context.Context) (string, error) {
			return withPrefix(s.URL(), "s"+strings.ReplaceAll(uuid.NewString(), "-", "")+"_"), nil
		}}, nil
	}
	s, err := postgres.Start(ctx, postgres.Config{Settings: settings})
	if err != nil {
		return nil, err
	}
	return &server{Close: s.Close, PIDs: s.PIDs, newDatabase: s.NewDatabase}, nil
}

// cpu is the processor time of all servers, with what processes of theirs had that have ended;
// 0 where there is no /proc.
func (b *bench) cpu() (total time.Duration) {
	for _, s := range b.servers {
		pids, err := s.PIDs()
		if err != nil {
			return 0
		}
		for i, pid := range pids {
			total += processTime(pid, i == 0)
		}
	}
	return total
}

// processTime is that of a process, or also of its children that have ended.
func processTime(pid int, children bool) time.Duration {
	const tick = 10 * time.Millisecond
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte(") ")) // the name may have spaces
	fields := bytes.Fields(rest)
	const utime, ended, more = 11, 13, 15
	last := ended
	if children {
		last = more
	}
	var ticks int64
	for i := utime; i < last && i < len(fields); i++ {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * tick
}
