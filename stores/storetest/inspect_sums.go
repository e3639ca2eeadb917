package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func causes(b *bench) {
	store := b.open()
	b.exhibit(store)
	for i := range 4 {
		b.fails(store, fmt.Sprint("slow ", i), func(f *stores.Failure) {
			f.Class, f.Error, f.Cause = stores.ClassTimeout, "slow", stores.CauseOf(stores.ClassTimeout, "slow")
			if i > 0 {
				f.Status = stores.StatusFailed
			}
		})
	}
	all, err := store.Causes(b.ctx, stores.Filter{}, 100)
	if err != nil {
		b.tb.Fatalf("Causes: %v", err)
	}
	if len(all) != 6 {
		b.tb.Fatalf("there are %d causes, want 6: %+v", len(all), all)
	}
	for i, c := range all {
		if i > 0 && all[i-1].Pending+all[i-1].Failed < c.Pending+c.Failed {
			b.tb.Errorf("a cause of %d messages comes after one of %d", c.Pending+c.Failed, all[i-1].Pending+all[i-1].Failed)
		}
		if c.ID != stores.CauseOf(c.Class, c.Error) {
			b.tb.Errorf("the cause %s has the class %s and the error %q, which is none of its own", c.ID, c.Class, c.Error)
		}
		if c.FirstAt.IsZero() || c.LastAt.Before(c.FirstAt) {
			b.tb.Errorf("the cause %q is from %s to %s", c.Error, c.FirstAt, c.LastAt)
		}
	}
	if c := all[0]; c.Consumer != consumer || c.Class != stores.ClassTimeout || c.Pending != 1 || c.Failed != 3 {
		b.tb.Errorf("the largest cause is %+v, want one pending and 3 failed", c)
	}
	if c := all[1]; c.Consumer != consumer || c.Class != stores.ClassTransient || c.Pending != 2 || c.Failed != 1 {
		b.tb.Errorf("the second cause is %+v, want 2 pending and one failed", c)
	}
	for i, c := range all {
		if c.Discarded != 0 {
			b.tb.Errorf("cause %d has %d discarded messages, which were not asked for", i, c.Discarded)
		}
	}
	discarded := stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}
	if got, err := store.Causes(b.ctx, discarded, 100); err != nil || len(got) != 1 ||
		got[0].ID != all[1].ID || got[0].Pending != 0 || got[0].Failed != 0 || got[0].Discarded != 1 {
		b.tb.Errorf("Causes of what is discarded = %+v, %v, want one message", got, err)
	}
	if some, err := store.Causes(b.ctx, stores.Filter{}, 2); err != nil || len(some) != 2 || some[0].ID != all[0].ID {
		b.tb.Errorf("Causes with a limit of 2 = %+v, %v", some, err)
	}
}

func counts(b *bench) {
	store := b.open()
	b.exhibit(store)
	b.keep(store, message1())
	theirs := message1()
	theirs.Consumer = another
	b.keep(store, theirs)
	expect := func(limit int, want map[string]int) {
		b.tb.Helper()
		all, err := store.Counts(b.ctx, limit)
		if err != nil {
			b.tb.Fatalf("Counts: %v", err)
		}
		got := make(map[string]int)
		for _, c := range all {
			if c.N == 0 {
				continue
			}
			got[c.Consumer.Handler+" "+c.Status] = c.N
			full := map[string]int{"handler pending": 3, "handler failed": 3}[c.Consumer.Handler+" "+c.Status]
			if c.More != (full > limit) || c.N > limit || time.Since(c.Oldest).Abs() > time.Hour {
				b.tb.Errorf("Counts(%d) has %+v", limit, c)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			b.tb.Errorf("Counts(%d) = %v, want %v", limit, got, want)
		}
	}
	expect(100, map[string]int{
		"handler pending": 3, "handler failed": 3, "handler discarded": 1, "handler quarantined": 1,
		"another handler failed": 1, "another handler quarantined": 1,
	})
	expect(2, map[string]int{
		"handler pending": 2, "handler failed": 2, "handler discarded": 1, "handler quarantined": 1,
		"another handler failed": 1, "another handler quarantined": 1,
	})
	b.decide(store, stores.VerbReject, b.quarantined()[1].RowID)
	expect(100, map[string]int{
		"handler pending": 3, "handler failed": 3, "handler discarded": 1, "handler quarantined": 1,
		"another handler failed": 1,
	})
}

// inspectStranger: operators' programs know no consumer.
func inspectStranger(b *bench) {
	b.exhibit(b.open())
	stranger := b.openOnly()
	b.selects(stranger, "a stranger", stores.Filter{Class: stores.ClassPermanent}, []string{"declined", "declined"})
	b.message(stranger, "panic")
	if _, err := stranger.Message(b.ctx, b.failure("panic").number); err != nil {
		b.tb.Errorf("Message: %v", err)
	}
	b.change(stranger, stores.VerbRetry, stores.Filter{Class: stores.ClassPermanent}, 2)
	if all, err := stranger.Audit(b.ctx, 0, 10); err != nil || len(all) != 3 {
		b.tb.Errorf("Audit = %d entries, %v, want 3", len(all), err)
	}
	if _, err := stranger.Quarantined(b.ctx, stores.QuarantineQuery{Limit: 1}); err != nil {
		b.tb.Errorf("Quarantined: %v", err)
	}
}

// consumers are those that are registered, whether anything of them has failed or not.
func consumers(b *bench) {
	store := b.open()
	var want []stores.Consumer
	for _, c := range []stores.Consumer{{Service: "a", Handler: "Z"}, {Service: "a", Handler: "é/b"}, {Service: "a b", Handler: "a"}} {
		if err := store.Register(b.ctx, stores.Registration{Consumer: c, Topic: "topic"}); err != nil {
			b.tb.Fatalf("Register: %v", err)
		}
		want = append(want, c)
	}
	var got []stores.Consumer
	all, err := b.open().Consumers(b.ctx)
	for _, c := range all {
		if slices.Contains(want, c) {
			got = append(got, c)
		}
	}
	if err != nil || !slices.Equal(got, want) || !slices.Contains(all, consumer) {
		b.tb.Errorf("Consumers = %v, %v, want %v and %v in it", all, err, want, consumer)
	}
}

func inspectSchema(b *bench) {
	ask := func(store stores.Store, want error) {
		b.tb.Helper()
		calls := map[string]func() error{
			"Messages":  func() error { _, err := store.Messages(b.ctx, stores.MessageQuery{Limit: 1}); return err },
			"Message":   func() error { _, err := store.Message(b.ctx, 1); return err },
			"Find":      func() error { _, err := store.Find(b.ctx, claimFor("id", "").Key); return err },
			"Causes":    func() error { _, err := store.Causes(b.ctx, stores.Filter{}, 1); return err },
			"Matching":  func() error { _, _, err := store.Matching(b.ctx, stores.Filter{}, 1); return err },
			"Counts":    func() error { _, err := store.Counts(b.ctx, 1); return err },
			"Consumers": func() error { _, err := store.Consumers(b.ctx); return err },
			"Change": func() error {
				_, err := store.Change(b.ctx, stores.Change{Verb: stores.VerbRetry, Limit: 1})
				return err
			},
			"Quarantined":    func() error { _, err := store.Quarantined(b.ctx, stores.QuarantineQuery{Limit: 1}); return err },
			"QuarantinedRow": func() error { _, err := store.QuarantinedRow(b.ctx, 1); return err },
			"Decide":         func() error { return store.Decide(b.ctx, stores.Decision{Verb: stores.VerbReject, RowID: 1}) },
			"Audit":          func() error { _, err := store.Audit(b.ctx, 0, 1); return err },
		}
		for name, call := range calls {
			wantErr(b.tb, name, call(), want)
		}
	}
	ask(b.openOnly(), stores.ErrNotMigrated)
	known := len(b.open().Migrations())
	b.exec(fmt.Sprintf("INSERT INTO millpond_schema (version, compatible, name) VALUES (%d, %d, 'storetest')", known+1, known))
	compatible := b.openOnly()
	if _, err := compatible.Messages(b.ctx, stores.MessageQuery{Limit: 1}); err != nil {
		b.tb.Errorf("Messages with a newer schema that is compatible: %v", err)
	}
	b.exec(fmt.Sprintf("INSERT INTO millpond_schema (version, compatible, name) VALUES (%d, %d, 'storetest')", known+2, known+1))
	ask(b.openOnly(), stores.ErrSchemaNewer)
}
