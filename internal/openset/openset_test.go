package openset_test

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/millpond-go/millpond/internal/openset"
)

type closer struct {
	close func() error
}

func (c *closer) Close() error { return c.close() }

func TestCloseClosesAllAtOnce(t *testing.T) {
	var set openset.Set[*closer]
	// Each waits for the others, and removes itself.
	var all sync.WaitGroup
	const members = 5
	all.Add(members)
	for range members {
		c := &closer{}
		c.close = func() error {
			all.Done()
			all.Wait()
			set.Remove(c)
			return io.ErrUnexpectedEOF
		}
		if !set.Add(c) {
			t.Fatal("an open set takes no member")
		}
	}
	gone := &closer{func() error { t.Error("who was removed is closed"); return nil }}
	set.Add(gone)
	set.Remove(gone)
	if set.Closed() {
		t.Error("it is closed before Close")
	}
	if err := set.Close(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the members' error became %v", err)
	}
	if err := set.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if !set.Closed() || set.Add(gone) {
		t.Error("a closed set takes a member")
	}
}

// Whoever is being added is either closed or refused.
func TestAddWhileItIsClosed(t *testing.T) {
	for range 100 {
		var set openset.Set[*closer]
		var adding sync.WaitGroup
		closed := make(chan struct{}, 10)
		refused := make(chan struct{}, 10)
		for range 10 {
			adding.Go(func() {
				if !set.Add(&closer{func() error { closed <- struct{}{}; return nil }}) {
					refused <- struct{}{}
				}
			})
		}
		if err := set.Close(); err != nil {
			t.Fatal(err)
		}
		adding.Wait()
		if n := len(closed) + len(refused); n != 10 {
			t.Fatalf("%d of 10 were closed or refused", n)
		}
	}
}
