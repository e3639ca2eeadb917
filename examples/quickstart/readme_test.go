package main

import (
	"os"
	"strings"
	"testing"
)

// README shows two runs: what it shows is what the program prints of such results.
func TestREADMEShowsThisTable(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	fleet := result{Lines: 10_476, Events: 10_000, Deliveries: 12_580, Redelivered: 64, Kills: 8}
	without, with := fleet, fleet
	without.withoutInbox, without.Seconds, without.AppliedOnce, without.Doubled = true, 5.3, 7_710, 2_516
	with.Seconds, with.AppliedOnce, with.AppliedNow, with.DuplicatesStopped = 15.8, 10_000, 10_000, 2_516
	for command, r := range map[string]result{"make run ARGS=--without-inbox": without, "make run": with} {
		var out strings.Builder
		if err := r.Print(options{}, &out); err != nil {
			t.Fatal(err)
		}
		table, _, _ := strings.Cut(out.String(), "\n\n")
		if !strings.Contains(string(text), "$ "+command+"\n"+table+"\n") {
			t.Errorf("README does not show of %s what the program prints:\n%s", command, table)
		}
	}
}
