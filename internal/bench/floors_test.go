package main

import (
	"os"
	"strings"
	"testing"
)

// Whoever changes code looks for the floors in CONTRIBUTING.
func TestFloorsAreThoseOfContributing(t *testing.T) {
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	floors := table{head: []string{"goal", "floor", "aim"}}
	nothing := spanOf(nil)
	for _, g := range goals {
		r := g.result(nothing, nothing)
		floors.rows = append(floors.rows, []string{r.What, r.Floor, r.Aim})
	}
	for _, g := range prompts {
		r := g.result(unknown)
		floors.rows = append(floors.rows, []string{r.What, r.Floor, r.Aim})
	}
	call := judgeCall(callResult{Time: nothing})
	floors.rows = append(floors.rows, []string{call.What, call.Floor, "–"})
	var want strings.Builder
	floors.write(&want, true)
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("CONTRIBUTING.md has other floors than the code:\n%s", want.String())
	}
}
