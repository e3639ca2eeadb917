// Command bench compares millpond with the same handlers without it, in one run on
// one machine, and prints a table of ratios.
//
//	go run ./internal/bench                # all of it, some minutes
//	go run ./internal/bench -groups sqlite # a part of it
//	go run ./internal/bench -waiting 10000 # less than a million parked messages
//	go run ./internal/bench -o json        # every sample
//	go run ./internal/bench -markdown      # also write docs/benchmarks.md
//
// It is no gate: it says what it has measured, and exits with 0 whatever that is.
//
// A recipe is one way of handling a message, a group is a set of recipes that are
// compared. A cell is one recipe with one number of workers: it delivers a fixed
// number of messages in a closed loop, each worker the next one when its last was
// settled. The cells of a group are run in turn, in random order, and that is
// repeated. A ratio is the median of the ratios of the repeats, so that whatever
// else happens on the machine meets both sides.
package main
