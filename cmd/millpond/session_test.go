package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// session calls the program in this process.
type session struct {
	t *testing.T
	*console
	ctx         context.Context
	vars        map[string]string
	outB, errB  bytes.Buffer
	openedTimes int
}

func newSession(t *testing.T) *session {
	t.Helper()
	s := &session{t: t, console: newConsole(), ctx: t.Context(), vars: map[string]string{"USER": "ada"}}
	s.in, s.out, s.err = strings.NewReader(""), &s.outB, &s.errB
	s.inTTY, s.outTTY, s.errTTY = false, false, false
	s.env = func(name string) string { return s.vars[name] }
	s.now = time.Now
	open := s.open
	s.open = func(ctx context.Context, url string) (store, error) {
		s.openedTimes++
		return open(ctx, url)
	}
	return s
}

// terminal makes all three ends one, on which input is typed.
func (s *session) terminal(input string) {
	s.inTTY, s.outTTY, s.errTTY = true, true, true
	s.in = strings.NewReader(input)
}

// run returns what was written to the standard output; see errB for the other one.
func (s *session) run(code int, args ...string) string {
	s.t.Helper()
	s.outB.Reset()
	s.errB.Reset()
	got := run(s.ctx, s.console, args)
	require.Equal(s.t, code, got, "millpond %q:\n%s%s", args, &s.outB, &s.errB)
	return s.outB.String()
}

func (s *session) ok(args ...string) string {
	s.t.Helper()
	return s.run(exitOK, args...)
}

// object returns the one JSON object that a call answers.
func (s *session) object(code int, args ...string) map[string]any {
	s.t.Helper()
	var object map[string]any
	require.NoError(s.t, json.Unmarshal([]byte(s.run(code, append(args, "-o", "json")...)), &object))
	return object
}

// objects returns the JSON objects that a list has, in both forms.
func (s *session) objects(args ...string) []map[string]any {
	s.t.Helper()
	var array, lines []map[string]any
	require.NoError(s.t, json.Unmarshal([]byte(s.ok(append(args, "-o", "json")...)), &array))
	for line := range strings.Lines(s.ok(append(args, "-o", "jsonl")...)) {
		var object map[string]any
		require.NoError(s.t, json.Unmarshal([]byte(line), &object))
		lines = append(lines, object)
	}
	require.Len(s.t, lines, len(array))
	return array
}

// itoa returns a number that was read from JSON.
func itoa(n any) string { return strconv.Itoa(int(n.(float64))) }
