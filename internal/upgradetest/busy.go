package upgradetest

import (
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
)

// Rows is how many completed messages a large inbox has.
func Rows() int {
	if rotation.Soak() {
		return 20_000_000
	}
	return 100_000
}

const (
	// Bound is for how long a migration may keep a delivery waiting, and as much again for a
	// busy machine.
	Bound = 2 * time.Second
	// runs is how long a handler goes on that has begun before.
	runs = 4 * time.Second
)

// Busy is a database with tables of the version before, that is in use.
type Busy struct {
	// Deliver handles a message by the statements of that version.
	Deliver func(id string) error
	// Begin reads all tables in a transaction, as a handler does that a retry worker runs, and
	// returns how to end it.
	Begin func() (end func() error, err error)
	// Migrate brings it to this version.
	Migrate func() error
	// File is where the inbox is stored: elsewhere once it was written anew.
	File func() (string, error)
}

// Migrated migrates it while a handler runs for long and deliveries go on, and returns how long
// one of them had to wait at most, and whether the inbox was written anew.
func (b Busy) Migrated(t *testing.T) (longest time.Duration, anew bool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := b.File()
	must(err)
	d := deliver(b.Deliver)
	d.some(t, "before the migration")
	end, err := b.Begin()
	must(err)
	migrated := make(chan error, 1)
	go func() { migrated <- b.Migrate() }()
	pause.Sleep(t.Context(), runs)
	if len(migrated) > 0 {
		t.Error("nothing waits for a handler that has used the tables: this shows nothing")
	}
	must(end())
	must(<-migrated)
	d.some(t, "after the migration")
	longest = d.stop(t)
	after, err := b.File()
	must(err)
	t.Logf("%d deliveries while a large inbox is migrated, of which the longest took %v", d.count.Load(), longest)
	return longest, before != after
}

// Bounded migrates one as this version does, and one as it must not.
func Bounded(t *testing.T, kept, broken Busy) {
	t.Helper()
	if longest, anew := kept.Migrated(t); longest > Bound || anew {
		t.Errorf("a delivery took %v, and the inbox was written anew: %t", longest, anew)
	}
	if longest, anew := broken.Migrated(t); longest <= Bound || !anew {
		t.Errorf("a migration that waits, and writes the inbox anew: the longest delivery took %v, written anew: %t", longest, anew)
	}
}
