package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// column is a table's column: its title, and its explanation in the help.
type column struct{ title, means string }

// columns are a table's columns.
type columns []column

func (c columns) titles() []string {
	titles := make([]string, 0, len(c))
	for _, one := range c {
		titles = append(titles, one.title)
	}
	return titles
}

// Columns that several tables have.
var (
	consumerColumn = column{"CONSUMER", "the consumer, as service/handler"}
	idColumn       = column{"ID", "the message's id, which begins with its kind, such as u: for a UUID; empty: it has none"}
	causeColumn    = column{"CAUSE", "the cause: failures whose errors differ only in ids and numbers; --cause selects it"}
	classColumn    = column{"CLASS", "the kind of the last error, such as transient, permanent or panic; --class selects it"}
	errorColumn    = column{"ERROR", "the first line of the last error, shortened"}
)

// exits are a command's exit codes, with their meanings.
type exits map[int]string

// generalExits are every command's exit codes, unless it has more specific ones.
var generalExits = exits{exitOK: "done", exitError: "error", exitUsage: "usage error; nothing was done"}

// unknownConsumer are the exit codes of lists with --consumer.
var unknownConsumer = exits{
	exitOK: "done; the list may be empty", exitNothing: "there is no such consumer",
}

// explained adds a command's columns and exit codes to its help.
func explained(cmd *cobra.Command, table columns, own exits) *cobra.Command {
	var b strings.Builder
	b.WriteString(cmp.Or(cmd.Long, cmd.Short))
	if len(table) > 0 {
		b.WriteString("\n\nColumns:")
		widest := 0
		for _, c := range table {
			widest = max(widest, utf8.RuneCountInString(c.title))
		}
		for _, c := range table {
			fmt.Fprintf(&b, "\n  %-*s  %s", widest, c.title, c.means)
		}
	}
	all := maps.Clone(generalExits)
	maps.Copy(all, own)
	b.WriteString("\n\nExit status:")
	for _, code := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "\n  %d  %s", code, all[code])
	}
	cmd.Long = b.String()
	return cmd
}
