package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// runnable returns the words of every command that does something.
func runnable(cmd *cobra.Command) [][]string {
	var all [][]string
	for _, c := range cmd.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.HasSubCommands() {
			all = append(all, runnable(c)...)
			continue
		}
		all = append(all, strings.Fields(c.CommandPath())[1:])
	}
	return all
}

func TestHelpSaysWhatEachCommandEndsWith(t *testing.T) {
	n, _ := newScripted(t, 1)
	commands := runnable((&program{console: n.console}).root())
	require.Len(t, commands, 31)
	for _, words := range commands {
		help := n.ok(append(words, "--help")...)
		require.Regexp(t, `(?s)\nExit status:\n  0  .*\n  1  .*\n  2  .*\n\nUsage:\n`, help, words)
		require.NotContains(t, help, "default -1", words)
	}
	require.Contains(t, n.ok("msg", "retry", "--help"), "\n  4  not all were changed")
}

// Every title of a table is explained in the help of the commands that print it.
func TestHelpExplainsEveryColumn(t *testing.T) {
	w := newWorld(t, "sqlite://"+filepath.ToSlash(filepath.Join(t.TempDir(), "test.db")))
	w.fails(2, charge, "card refused")
	w.quarantine("q", "payload")
	for _, call := range []string{
		"msg ls", "cause ls", "quarantine ls", "stats", "msg retry --all --dry-run", "msg discard --all --dry-run",
		"quarantine reject 1", "quarantine reopen 1", "quarantine release 1", "audit ls", "migrate up --dry-run",
	} {
		out := w.ok(strings.Fields(call)...)
		titles, _, _ := strings.Cut(out, "\n")
		words, _, _ := strings.Cut(call, " -")
		help := w.ok(append(strings.Fields(strings.TrimSuffix(words, " 1")), "--help")...)
		for title := range strings.FieldsSeq(titles) {
			require.Regexp(t, `(?m)^  `+regexp.QuoteMeta(title)+`  +\S`, help, call)
		}
	}
}
