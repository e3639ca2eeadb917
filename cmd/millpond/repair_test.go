package main

import (
	"fmt"
	"testing"
)

func TestDemo(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		w.fails(3, charge, "card refused for order")
		w.fails(2, mail, "smtp: connection refused")
		w.quarantine("q1", `{"a":1}`)
		for _, args := range [][]string{
			{"group", "ls"},
			{"msg", "ls"}, {"msg", "show", "1"}, {"msg", "show", "1", "-o", "json"}, {"stats"}, {"quarantine", "ls"},
			{"quarantine", "show", "1"}, {"quarantine", "show", "1", "-o", "json"},
			{"msg", "retry", "--all", "--dry-run"},
			{"msg", "retry", "--all", "--yes"},
			{"msg", "discard", "--consumer", "billing/mail", "--yes", "-o", "json"},
			{"audit", "ls"},
			{"migrate", "status"}, {"migrate", "status", "-o", "json"},
			{"quarantine", "release", "1"},
			{"msg", "ls"}, {"version"}, {"group", "ls", "-o", "json"},
		} {
			fmt.Println("$ millpond", args)
			fmt.Print(w.ok(args...))
			fmt.Print(w.errB.String())
		}
	})
}
