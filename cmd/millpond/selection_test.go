package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestTimes(t *testing.T) {
	for s, want := range map[string]time.Time{
		"":                          {},
		"2h":                        noon.Add(-2 * time.Hour),
		"7d":                        noon.Add(-7 * 24 * time.Hour),
		"1w2d3h4m":                  noon.Add(-(9*24*time.Hour + 3*time.Hour + 4*time.Minute)),
		"90s":                       noon.Add(-90 * time.Second),
		"0s":                        noon,
		"2026-02-28T10:00:00Z":      noon.Add(-26 * time.Hour),
		"2026-02-28T12:00:00+02:00": noon.Add(-26 * time.Hour),
	} {
		got, err := parseTime("--since", s, noon)
		require.NoError(t, err, s)
		require.True(t, got.Equal(want), "%s: %v, want %v", s, got, want)
	}
	for _, s := range []string{"yesterday", "-2h", "2", "d", "1.5d", "-1d", "70000d", "2026-02-30T00:00:00Z", "2h ago", "1d1w"} {
		_, err := parseTime("--since", s, noon)
		require.Error(t, err, s)
		require.Equal(t, exitUsage, exitCode(err, true), s)
	}
}

func TestFilter(t *testing.T) {
	s := selection{
		consumer: "billing/charge/eu", cause: "g", class: "timeout", topic: "orders", errorContains: "%", since: "1d", until: "2h",
		id: `c=acme u:a\x1bb`, status: []string{"failed", "discarded"},
	}
	f, chosen, err := s.filter([]string{"4", "7", "4"}, noon)
	require.NoError(t, err)
	require.Equal(t, []string{
		"numbers", "--consumer", "--cause", "--class", "--topic", "--error-contains", "--since", "--until", "--id", "--status",
	}, chosen)
	require.Equal(t, stores.Filter{
		Service: "billing", Handler: "charge/eu", Cause: "g", Class: stores.ClassTimeout, Topic: "orders", ErrorContains: "%",
		Since: noon.Add(-24 * time.Hour), Until: noon.Add(-2 * time.Hour), Numbers: []int64{4, 7},
		ID: []byte("c4:acme|u:a\x1bb"), Status: []stores.Status{stores.StatusFailed, stores.StatusDiscarded},
	}, f)

	f, chosen, err = (&selection{}).filter(nil, noon)
	require.NoError(t, err)
	require.Empty(t, chosen)
	require.Equal(t, stores.Filter{}, f)

	f, _, err = (&selection{consumer: "billing", id: "hex:00ff"}).filter(nil, noon)
	require.NoError(t, err)
	require.Equal(t, stores.Filter{Service: "billing", ID: []byte{0, 255}}, f)
}

func TestFiltersThatSayNothing(t *testing.T) {
	for name, s := range map[string]selection{
		"consumer without service": {consumer: "/charge"},
		"consumer without handler": {consumer: "billing/"},
		"status":                   {status: []string{"completed"}},
		"unknown status":           {status: []string{"lost"}},
		"id":                       {id: "4711"},
		"hex":                      {id: "hex:0"},
		"empty hex":                {id: "hex:"},
		"times the wrong way":      {since: "1h", until: "2h"},
	} {
		_, _, err := s.filter(nil, noon)
		require.Equal(t, exitUsage, exitCode(err, true), "%s: %v", name, err)
	}
	for _, arg := range []string{"0", "-1", "x", "99999999999999999999", "1.5", ""} {
		_, _, err := (&selection{}).filter([]string{arg}, noon)
		var e *exitingError
		require.True(t, errors.As(err, &e) && e.code == exitUsage, "%q: %v", arg, err)
	}
}
