package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestWrongCalls(t *testing.T) {
	n, _ := newScripted(t, 1)
	for _, args := range [][]string{
		{},
		{"msg"},
		{"quarantine"},
		{"cause"},
		{"migrate"},
		{"audit"},
		{"frobnicate"},
		{"msg", "frobnicate"},
		{"--frobnicate"},
		{"msg", "ls", "--frobnicate"},
		{"msg", "ls", "extra"},
		{"stats", "-o", "xml"},
		{"stats", "--timeout", "0s"},
		{"stats", "--timeout", "soon"},
		{"msg", "ls", "--limit", "0"},
		{"msg", "ls", "--before", "-1"},
		{"cause", "ls", "--limit", "-5"},
		{"msg", "show"},
		{"msg", "show", "x"},
		{"msg", "show", "1", "2"},
		{"msg", "show", "1", "--id", "u:1"},
		{"msg", "show", "--id", "u:1"},
		{"msg", "show", "--id", "u:1", "--consumer", "billing"},
		{"msg", "show", "1", "--payload", "xml"},
		{"msg", "show", "1", "--payload", "raw", "-o", "json"},
		{"msg", "show", "1", "--max-payload-bytes", "-2"},
		{"quarantine", "show"},
		{"quarantine", "release", "0"},
		{"quarantine", "reject"},
		{"retry"},
		{"retry", "--cause", "x"},
		{"cause", "show"},
		{"cause", "show", "--yes"},
		{"migrate", "sql", "--from", "0"},
		{"version", "extra"},
	} {
		n.run(exitUsage, args...)
		require.NotEmpty(t, n.errB.String(), args)
		require.Empty(t, n.outB.String(), args)
	}
	n.vars[storeVariable] = ""
	n.run(exitUsage, "stats")
	require.Contains(t, n.errB.String(), "which store? Give its URL with --store or in MILLPOND_STORE_URL")
}

func TestUnknownCommandsAndWhatMayBeMeant(t *testing.T) {
	n, _ := newScripted(t, 1)
	for call, want := range map[string]string{
		"retry":             "did you mean millpond relay or millpond msg retry or millpond outbox retry?",
		"retry --cause x":   "did you mean millpond relay or millpond msg retry or millpond outbox retry?",
		"retry --all --yes": "did you mean millpond relay or millpond msg retry or millpond outbox retry?",
		"cuase ls":          "did you mean millpond cause or millpond erase?",
		"cause show":        "did you mean millpond msg show or millpond outbox show or millpond quarantine show?",
		"msg realese":       `"realese" is no command of millpond msg, which has discard, ls, resolve, retry, show`,
		"quarantine relase": "did you mean millpond quarantine release?",
		"--frobnicate":      "unknown flag: --frobnicate",
		"msg retry --frob":  "unknown flag: --frob",
	} {
		n.run(exitUsage, strings.Fields(call)...)
		require.Contains(t, n.errB.String(), want, call)
		require.Equal(t, 1, strings.Count(n.errB.String(), "\n"), "one sentence")
	}
}

func TestCallsThatLackRowsOrHaveTooMuch(t *testing.T) {
	n, _ := newScripted(t, 1)
	for call, want := range map[string]string{
		"quarantine release":                    "millpond: release which rows? Give their numbers\n",
		"quarantine reject --yes":               "millpond: reject which rows? Give their numbers\n",
		"quarantine show":                       "millpond: show which row? Give one number\n",
		"msg retry --all --cause x":             "millpond: --all takes no other selection: leave out --all, or --cause\n",
		"msg discard 4 --all --status failed":   "millpond: --all takes no other selection: leave out --all, or numbers and --status\n",
		"stats --store mssql://app:c4nary@host": "millpond: the store's URL has the scheme \"mssql\": the tool knows dynamodb, mysql, postgres, postgres+sql, postgresql, postgresql+sql, sqlite\n",
		"stats --store test.db":                 "millpond: the store's URL has no scheme: write postgres://…, mysql://…, dynamodb://… or sqlite://file.db\n",
		"stats --store sqlite:test.db":          "millpond: the store's URL names no file: write sqlite://file.db, or sqlite:///path/file.db\n",
		"stats --store sqlite://":               "millpond: the store's URL names no file: write sqlite://file.db, or sqlite:///path/file.db\n",
		"msg show 1 2":                          "millpond: millpond msg show takes one argument at most: leave out \"2\"\n",
		"config check a b":                      "millpond: millpond config check takes one argument at most: leave out \"b\"\n",
		"stats extra":                           "millpond: millpond stats takes no arguments: leave out \"extra\"\n",
		"quarantine ls --reason confict":        "millpond: --reason is \"confict\": use conflict, no_key, key_too_long, undecodable, too_large, acked_early, handler_commit, stale\n",
	} {
		if strings.Contains(call, "--store") {
			n.open = openStore
		} else {
			n, _ = newScripted(t, 1)
		}
		n.run(exitUsage, strings.Fields(call)...)
		require.Equal(t, want, n.errB.String(), call)
	}
}

func TestWhyThereIsNoConnectionIsSaidOnce(t *testing.T) {
	const nobody = "postgres://app:c4nary@127.0.0.1:1/db?connect_timeout=5"
	_, err := stores.Open(t.Context(), nobody)
	require.ErrorIs(t, err, stores.ErrUnavailable)
	n := newSession(t)
	n.run(exitError, "stats", "--store", nobody)
	require.Equal(t, 1, strings.Count(n.errB.String(), "postgres:"), n.errB.String())
	require.Equal(t, 1, strings.Count(n.errB.String(), "dial tcp"), n.errB.String())
	require.Equal(t, 1, strings.Count(n.errB.String(), "\n"), n.errB.String())
	require.Contains(t, n.errB.String(), "cannot connect to 127.0.0.1:1: ")
}

func TestHelpVersionAndCompletion(t *testing.T) {
	n, _ := newScripted(t, 1)
	require.Contains(t, n.ok("--help"), "3  nothing matched; an empty list ends with 0")
	require.Contains(t, n.ok("msg", "retry", "--help"), "--dry-run")
	require.Contains(t, n.ok("version"), "go1.")
	require.Contains(t, n.object(exitOK, "version"), "go")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, n.ok("completion", shell), "millpond")
	}
	require.Contains(t, n.ok("__complete", "msg", "ls", "--status", ""), "discarded")
	require.Contains(t, n.ok("__complete", "stats", "-o", ""), "jsonl")
}

// The password of a store's URL is in no output, wherever the URL was put.
func TestSecrets(t *testing.T) {
	server, err := url.Parse(postgresURL(t))
	require.NoError(t, err)
	server.User = url.UserPassword("millpond_nobody", "c4nary/pw")
	secret := server.String()
	n := newSession(t)
	n.vars[storeVariable] = secret
	for _, args := range [][]string{
		{"stats"},
		{"migrate", "up"},
		{"migrate", "status"},
		{"--help"},
		{"msg", "ls", "--help"},
		{"stats", "--store", secret},
		{"stats", "--store", strings.Replace(secret, "%2F", "/", 1)},
		{"stats", "--store", "postgres://app:c4nary/pw@127.0.0.1:1/db?sslmode=nonsense"},
		{"stats", "--store", "postgres://127.0.0.1:1/db?user=app&password=c4nary"},
		{"stats", "--store", "mysql://app:c4nary@127.0.0.1:1/db"},
		{"stats", "--store", "sqlite://app:c4nary@file.db"},
		{"stats", "-s" + secret},
		{secret, "stats"},
		{"stats", secret},
		{"stats", "--store " + secret},
		{"msg", "retry", secret},
		{"msg", "ls", "--since", secret},
		{"msg", "ls", "--id", secret},
	} {
		run(n.ctx, n.console, args)
		require.NotContains(t, n.outB.String()+n.errB.String(), "c4nary", args)
		n.outB.Reset()
		n.errB.Reset()
	}
}

func TestAMisspeltFileIsNotCreated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "misspelt.db")
	n := newSession(t)
	n.vars[storeVariable] = "sqlite://" + filepath.ToSlash(path)
	for _, args := range [][]string{{"stats"}, {"migrate", "status"}, {"migrate", "up", "--dry-run"}, {"msg", "retry", "--all", "--yes"}} {
		n.run(exitError, args...)
		require.Contains(t, n.errB.String(), "no such file or directory: check its path, or make it with millpond migrate up\n", args)
	}
	require.Contains(t, n.ok("migrate", "sql"), "-- 0001_inbox")
	_, err := os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What is asked for twice is not answered for the last one alone.
func TestFlagsThatTakeOneValueAreGivenOnce(t *testing.T) {
	n, s := newScripted(t, 1)
	for _, flag := range []string{"class", "cause", "topic", "consumer", "id", "error-contains", "since", "until"} {
		for _, command := range []string{"ls", "retry", "discard"} {
			n.run(exitUsage, "msg", command, "--"+flag, "1h", "--"+flag+"=2h")
			require.Contains(t, n.errB.String(), "--"+flag, command)
			require.Contains(t, n.errB.String(), "it is given twice, and takes one value")
		}
	}
	n.run(exitUsage, "stats", "--store", "sqlite://a.db", "--store", "sqlite://b.db")
	n.run(exitUsage, "stats", "-o", "json", "--output", "table")
	n.run(exitUsage, "msg", "retry", "1", "--reason", "a", "--reason", "b")
	n.run(exitUsage, "quarantine", "ls", "--reason", "conflict", "--reason", "no_key")
	require.Empty(t, s.changes)
	n.ok("msg", "retry", "1", "--yes", "--yes", "--status", "pending", "--status", "failed")
}

// A variable that is not set must not widen what is asked for.
func TestFlagsThatAreEmptyAreNoFlagsLeftOut(t *testing.T) {
	n, s := newScripted(t, 5)
	for _, flag := range []string{"class", "cause", "topic", "consumer", "id", "error-contains", "since", "until", "status", "actor", "reason"} {
		for _, command := range []string{"retry", "discard"} {
			n.run(exitUsage, "msg", command, "1", "--yes", "--"+flag, "")
			require.Equal(t, "millpond: --"+flag+" is empty: give it a value, or leave it out\n", n.errB.String(), command)
			n.run(exitUsage, "msg", command, "--topic", "orders", "--yes", "--"+flag+"=")
		}
	}
	for _, call := range [][]string{
		{"msg", "ls", "--cause", ""},
		{"msg", "show", "1", "--payload", ""},
		{"quarantine", "ls", "--reason", ""},
		{"quarantine", "ls", "--status", ""},
		{"quarantine", "reject", "1", "--reason", "", "--yes"},
		{"stats", "--store", ""},
		{"stats", "-o", ""},
	} {
		n.run(exitUsage, call...)
		require.Contains(t, n.errB.String(), " is empty: give it a value, or leave it out\n", call)
	}
	require.Empty(t, s.changes)
}
