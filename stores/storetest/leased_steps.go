package storetest

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func (b *bench) stepDone(leases stores.LeaseInbox, l stores.HeldLease, name, result string) {
	b.tb.Helper()
	if err := leases.RecordStep(b.ctx, l, stores.Step{Name: name, Result: []byte(result)}); err != nil {
		b.tb.Fatalf("RecordStep of %q by %s: %v", name, l.Holder, err)
	}
}

func (b *bench) stepRefused(leases stores.LeaseInbox, l stores.HeldLease, what string) {
	b.tb.Helper()
	_, err := leases.Steps(b.ctx, l)
	wantErr(b.tb, "reading, as for "+what, err, stores.ErrChanged)
	wantErr(b.tb, what, leases.RecordStep(b.ctx, l, stores.Step{Name: "late", Result: []byte("1")}), stores.ErrChanged)
}

// stepsAre checks what is on record, as name and result in turns.
func (b *bench) stepsAre(k stores.Key, what string, want ...string) {
	b.tb.Helper()
	var steps []stores.Step
	b.query("SELECT message_id, name, result FROM millpond_once", func(rows *sql.Rows) error {
		var id []byte
		var s stores.Step
		err := rows.Scan(&id, &s.Name, &s.Result)
		if bytes.Equal(id, k.ID) {
			steps = append(steps, s)
		}
		return err
	})
	b.sameSteps(what, steps, want)
}

// stepsRead checks what the holder of a lease reads.
func (b *bench) stepsRead(leases stores.LeaseInbox, l stores.HeldLease, what string, want ...string) {
	b.tb.Helper()
	steps, err := leases.Steps(b.ctx, l)
	if err != nil {
		b.tb.Fatalf("Steps, to %s: %v", l.Holder, err)
	}
	b.sameSteps(what, steps, want)
}

func (b *bench) sameSteps(what string, steps []stores.Step, want []string) {
	b.tb.Helper()
	got := make(map[string]string)
	for _, s := range steps {
		got[s.Name] = string(s.Result)
	}
	if len(got) != len(want)/2 || len(steps) != len(got) {
		b.tb.Errorf("%s: %d steps are on record, want %d", what, len(steps), len(want)/2)
	}
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			b.tb.Errorf("%s: the step %q has the result %.50q, want %.50q", what, want[i], got[want[i]], want[i+1])
		}
	}
}

// leasedSteps: steps are the message's, from one attempt to the next, and end with its failure.
func leasedSteps(b *bench) {
	here, leases := b.leasing()
	_, elsewhere := b.leasing()
	longest, largest := string(bytes.Repeat([]byte("ü"), stores.MaxStepNameBytes/2)), string(bytes.Repeat([]byte{0, 0xff}, stores.MaxStepResultBytes/2))
	for _, verb := range []stores.Verb{"", stores.VerbDiscard} {
		c, other := claimFor("steps"+string(verb), "payload"), claimFor("steps of another"+string(verb), "payload")
		first := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", 50*time.Millisecond)), Holder: "here/1"}
		others := stores.HeldLease{Key: other.Key, Version: b.record(here, leaseOf(other, 0, "here/2", time.Hour)), Holder: "here/2"}
		b.stepsRead(leases, first, "nothing is done")
		b.stepDone(leases, first, "charge", "lost")
		b.stepDone(leases, first, "charge", "1") // the answer to the one before was lost
		b.stepDone(leases, first, longest, largest)
		b.stepDone(leases, first, "CHARGE", "")
		b.stepDone(leases, others, "charge", "2")
		l := b.takesOver(here, c, first.Version, "elsewhere/1")
		b.stepsRead(elsewhere, l, "taken over", "charge", "1", "CHARGE", "", longest, largest)
		b.stepDone(elsewhere, l, "ship", "3")
		c.Take = l.Version
		b.rollback(b.win(here, c))
		b.stepsRead(leases, l, "a completion was rolled back", "charge", "1", "CHARGE", "", longest, largest, "ship", "3")
		if verb == "" {
			b.commit(b.win(here, c))
			b.stepsAre(c.Key, "completed")
		} else {
			b.breaks(here, verb, string(c.Key.ID))
			b.stepsAre(c.Key, "discarded, it may still be retried", "charge", "1", "CHARGE", "", longest, largest, "ship", "3")
		}
		b.stepsAre(other.Key, "another message", "charge", "2")
		b.stepRefused(leases, l, "a step of what is over")
	}
}

func leasedStepsFenced(b *bench) {
	here, leases := b.leasing()
	c := claimFor("fenced", "payload")
	l := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", 50*time.Millisecond)), Holder: "here/1"}
	b.stepRefused(leases, stores.HeldLease{Key: c.Key, Version: l.Version, Holder: "HERE/1"}, "a step of another holder")
	b.stepRefused(leases, stores.HeldLease{Key: c.Key, Version: l.Version + 1, Holder: l.Holder}, "a step in another version")
	b.stepRefused(leases, stores.HeldLease{Key: claimFor("other", "").Key, Version: l.Version, Holder: l.Holder}, "a step of another key")
	if !poll(b.ctx, patience, func() bool { return leases.Extend(b.ctx, l, time.Millisecond) != nil }) {
		b.tb.Fatal("a lease never expires")
	}
	b.stepDone(leases, l, "expired", "1") // and nobody has taken it over
	now := b.takesOver(here, c, l.Version, "elsewhere/1")
	b.stepRefused(leases, l, "a step of who was overtaken")
	b.stepDone(leases, now, "fresh", "1")
	failed := failureOf(c)
	redelivered(&failed)
	failed.Version = now.Version
	b.record(here, failed)
	b.stepRefused(leases, now, "a step of what has failed")
	b.stepsAre(c.Key, "of those who held it", "expired", "1", "fresh", "1")
}

// leasedStepsRace: what a takeover does not find on record is not recorded any more.
func leasedStepsRace(b *bench) {
	here, leases := b.leasing()
	elsewhere, successor := b.leasing()
	for round := range 20 {
		c := claimFor("race "+string(rune('a'+round)), "payload")
		l := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", time.Millisecond)), Holder: "here/1"}
		var (
			both     sync.WaitGroup
			recorded error
		)
		both.Go(func() {
			for recorded == nil {
				recorded = leases.RecordStep(b.ctx, l, stores.Step{Name: "step", Result: []byte("1")})
				if errors.Is(recorded, stores.ErrUnavailable) {
					recorded = nil
				}
			}
		})
		now := b.takesOver(elsewhere, c, l.Version, "elsewhere/1")
		seen, err := successor.Steps(b.ctx, now)
		both.Wait()
		after, _ := successor.Steps(b.ctx, now)
		if err != nil || len(seen) != len(after) || !errors.Is(recorded, stores.ErrChanged) {
			b.tb.Errorf("%d steps were on record at the takeover, %d are now; the last was answered by %v, %v", len(seen), len(after), recorded, err)
		}
	}
}

// recordsUntilRefused records one step after the other.
func (b *bench) recordsUntilRefused(leases stores.LeaseInbox, l stores.HeldLease) {
	for i := 0; ; i++ {
		err := leases.RecordStep(b.ctx, l, stores.Step{Name: fmt.Sprint(i), Result: []byte("1")})
		if err != nil && !errors.Is(err, stores.ErrUnavailable) {
			return
		}
	}
}

// leasedStepsEnd: a step whose record comes late goes with the completion, or is refused.
func leasedStepsEnd(b *bench) {
	here, _ := b.leasing()
	b.stepsEnd("completed", func(c stores.Claim) bool {
		a, v, err := here.Begin(b.ctx, c)
		if err != nil || v.Outcome != stores.Claimed {
			return false
		}
		b.commit(a)
		return true
	})
}

// leasedStepsChange: so it is where an operator takes the lease away, and what is on record.
func leasedStepsChange(b *bench) {
	here := b.open()
	for _, verb := range []stores.Verb{stores.VerbResolve, stores.VerbErase} {
		b.stepsEnd(string(verb), func(c stores.Claim) bool {
			got, err := here.Change(b.ctx, stores.Change{
				Verb: verb, Filter: stores.Filter{ID: c.Key.ID, Status: []stores.Status{stores.StatusPending}}, Break: true, Actor: actor, Limit: 1,
			})
			return err == nil && got.Changed == 1
		})
	}
}

// stepsEnd checks that no step is left when end has ended a message whose holder records some.
func (b *bench) stepsEnd(how string, end func(stores.Claim) bool) {
	b.tb.Helper()
	here, _ := b.leasing()
	_, elsewhere := b.leasing()
	for round := range 40 {
		c := claimFor(fmt.Sprint(how, round), "payload")
		l := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", time.Hour)), Holder: "here/1"}
		b.stepDone(elsewhere, l, "first", "1")
		var both sync.WaitGroup
		both.Go(func() { b.recordsUntilRefused(elsewhere, l) })
		c.Take = l.Version
		if !poll(b.ctx, patience, func() bool { return end(c) }) {
			b.tb.Fatal("the end never has its turn")
		}
		both.Wait()
		b.stepsAre(c.Key, how)
	}
}
