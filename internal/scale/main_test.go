package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the parent start this binary as one of its processes.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Processes on two databases, one of which is killed: nothing is lost, and nothing doubled.
func TestProcessesShareAndSurvive(t *testing.T) {
	t.Parallel()
	chart := filepath.Join(t.TempDir(), "scale.svg")
	var out bytes.Buffer
	err := run(t.Context(), []string{"-on", twoPostgres, "-messages", "400", "-processes", "2", "-kills", "1", "-svg", chart}, &out, t.Output())
	require.NoError(t, err)
	require.Contains(t, out.String(), "| 2 PostgreSQL | 4 | 400 | 1 | 0 | 0 | 0 |")
	drawn, err := os.ReadFile(chart)
	require.NoError(t, err)
	wellFormed(t, drawn)
}

func wellFormed(t *testing.T, drawn []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"-on", onePostgres + "," + onDynamoLocal, "-processes", "1,4"}, io.Discard)
	require.NoError(t, err)
	r := &report{options: o, cells: []cell{
		{on: onePostgres, processes: 1, messages: 10, rate: 100, client: time.Millisecond, distinct: 10, all: 10},
		{on: onePostgres, processes: 4, messages: 10, rate: 350, distinct: 9, all: 11},
		{on: onDynamoLocal, processes: 1, messages: 10, rate: 20, distinct: 10, all: 10},
	}}
	require.Contains(t, r.table(), "| 1 PostgreSQL | 1 | 100 | 1.00 | 1000 | 0 | 0 | 0 |")
	require.Contains(t, r.table(), "| 1 PostgreSQL | 4 | 350 | 3.50 | 0 | 0 | 1 | 2 |")
	chart := r.chart()
	wellFormed(t, chart)
	require.Equal(t, 2, strings.Count(string(chart), "<polyline"))
	for _, wrong := range [][]string{{"-on", "Redis"}, {"-processes", "9"}, {"-processes", "x"}, {"-messages", "1"}, {"-kills", "-1"}} {
		_, err := parseOptions(wrong, io.Discard)
		require.Error(t, err, wrong)
	}
}
