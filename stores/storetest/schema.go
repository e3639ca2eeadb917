package storetest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/millpond-go/millpond/stores"
)

func schemaChecks() []check {
	return []check{
		{name: "before Migrate", run: notMigrated},
		{name: "without a table", run: tableMissing},
		{name: "Migrate", run: migrate},
		{name: "Migrate concurrently", run: migrateConcurrently},
		{name: "Migrations by hand", run: migrateByHand},
		{name: "newer schema", run: newerSchema},
		{name: "leaves the rest alone", run: migrateAlone},
	}
}

// applied fails unless the database has the steps up to want.
func (b *bench) applied(store stores.Migrator, want int, after string) {
	b.tb.Helper()
	if got, err := store.Applied(b.ctx); err != nil || got != want {
		b.tb.Errorf("Applied after %s = %d, %v, want %d", after, got, err, want)
	}
}

func notMigrated(b *bench) {
	store := b.openOnly()
	wantErr(b.tb, "Validate of an empty database", store.Validate(b.ctx), stores.ErrNotMigrated)
	wantErr(b.tb, "Register in an empty database", store.Register(b.ctx, stores.Registration{Consumer: consumer}), stores.ErrNotMigrated)
	b.applied(store, 0, "nothing")
	attempt, _, err := store.Begin(b.ctx, claimFor("id", "payload"))
	wantErr(b.tb, "Begin in an empty database", err, stores.ErrNotMigrated, stores.ErrNotRegistered)
	b.noAttempt(attempt)
}

// tableMissing: the tables went away after the service had started.
func tableMissing(b *bench) {
	store := b.open()
	b.exec("DROP TABLE millpond_inbox")
	b.exec("DROP TABLE millpond_quarantine")
	b.exec("DROP TABLE millpond_failure")
	claim := claimFor("id", "payload")
	attempt, _, err := store.Begin(b.ctx, claim)
	wantErr(b.tb, "Begin without the inbox table", err, stores.ErrNotMigrated, stores.ErrNotRegistered)
	b.noAttempt(attempt)
	_, err = store.Look(b.ctx, claim.Key, claim.Fingerprint)
	wantErr(b.tb, "Look without the inbox table", err, stores.ErrNotMigrated, stores.ErrNotRegistered)
	_, err = store.Record(b.ctx, failureOf(claim))
	wantErr(b.tb, "Record without its tables", err, stores.ErrNotMigrated, stores.ErrNotRegistered)
	wantErr(b.tb, "Quarantine without its table", store.Quarantine(b.ctx, message1()), stores.ErrNotMigrated, stores.ErrNotRegistered)
}

func migrate(b *bench) {
	store := b.openOnly()
	all := store.Migrations()
	if len(all) == 0 {
		b.tb.Fatal("Migrations is empty")
	}
	for i, m := range all {
		if m.Version != i+1 || m.Name == "" || strings.TrimSpace(m.SQL) == "" {
			b.tb.Errorf("Migrations[%d] is version %d, name %q, %d bytes of SQL", i, m.Version, m.Name, len(m.SQL))
		}
	}
	applied, err := store.Migrate(b.ctx)
	if err != nil || len(applied) != len(all) {
		b.tb.Fatalf("Migrate of an empty database = %d steps, %v, want %d", len(applied), err, len(all))
	}
	for i, m := range applied {
		if m != all[i] {
			b.tb.Errorf("Migrate returned %d %s at place %d", m.Version, m.Name, i)
		}
	}
	for _, s := range []stores.Store{store, b.openOnly()} {
		b.applied(s, len(all), "Migrate")
		if err := s.Validate(b.ctx); err != nil {
			b.tb.Errorf("Validate after Migrate: %v", err)
		}
		if applied, err := s.Migrate(b.ctx); err != nil || len(applied) != 0 {
			b.tb.Errorf("a second Migrate = %d steps, %v, want none", len(applied), err)
		}
	}
	b.register(store, consumer)
	b.complete(store, claimFor("id", "payload"))
	before := b.snapshot()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Errorf("Migrate: %v", err)
	}
	b.unchanged(before, "a later Migrate")
}

func migrateConcurrently(b *bench) {
	var open []stores.Store
	for range 6 {
		open = append(open, b.openOnly())
	}
	var mu sync.Mutex
	var applied int
	var group sync.WaitGroup
	for _, store := range open {
		group.Go(func() {
			var steps []stores.Migration
			err := b.retry(func() (err error) {
				steps, err = store.Migrate(b.ctx)
				return err
			})
			if err == nil {
				err = store.Validate(b.ctx)
			}
			if err != nil {
				b.tb.Errorf("Migrate, while others do: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += len(steps)
		})
	}
	group.Wait()
	if want := len(open[0].Migrations()); applied != want {
		b.tb.Errorf("%d steps were applied by %d processes, want %d, once", applied, len(open), want)
	}
	for i, store := range open {
		b.register(store, consumer)
		b.complete(store, claimFor(fmt.Sprint(i), "payload"))
	}
}

// migrateByHand executes the printed SQL as a person or another tool does.
func migrateByHand(b *bench) {
	store := b.openOnly()
	for _, m := range store.Migrations() {
		b.exec(m.SQL)
		b.applied(store, m.Version, "the SQL of "+m.Name)
	}
	if err := store.Validate(b.ctx); err != nil {
		b.tb.Fatalf("Validate after the SQL of Migrations: %v", err)
	}
	if applied, err := store.Migrate(b.ctx); err != nil || len(applied) != 0 {
		b.tb.Errorf("Migrate after the SQL of Migrations = %d steps, %v, want none", len(applied), err)
	}
	b.register(store, consumer)
	b.complete(store, claimFor("id", "payload"))
}

// newerSchema: a newer program has migrated, first in a way that this one can live
// with, then not.
func newerSchema(b *bench) {
	running := b.open()
	known := len(running.Migrations())
	b.exec(fmt.Sprintf("INSERT INTO millpond_schema (version, compatible, name) VALUES (%d, %d, 'storetest')", known+1, known))
	store := b.openOnly()
	b.applied(store, known+1, "a newer program")
	if err := store.Validate(b.ctx); err != nil {
		b.tb.Errorf("Validate of a newer schema that is compatible: %v", err)
	}
	if applied, err := store.Migrate(b.ctx); err != nil || len(applied) != 0 {
		b.tb.Errorf("Migrate of a newer schema that is compatible = %d steps, %v, want none", len(applied), err)
	}
	b.register(store, consumer)
	b.complete(store, claimFor("compatible", "payload"))
	b.complete(running, claimFor("compatible, running", "payload"))

	b.exec(fmt.Sprintf("INSERT INTO millpond_schema (version, compatible, name) VALUES (%d, %d, 'storetest')", known+2, known+1))
	store = b.openOnly()
	b.applied(store, known+2, "a newer program that is not compatible")
	wantErr(b.tb, "Validate of a newer schema", store.Validate(b.ctx), stores.ErrSchemaNewer)
	wantErr(b.tb, "Register in a newer schema", store.Register(b.ctx, stores.Registration{Consumer: consumer}), stores.ErrSchemaNewer)
	before := b.dump("millpond_schema")
	_, err := store.Migrate(b.ctx)
	wantErr(b.tb, "Migrate of a newer schema", err, stores.ErrSchemaNewer)
	if after := b.dump("millpond_schema"); len(after) != len(before) {
		b.tb.Errorf("Migrate of a newer schema changed it to %q", after)
	}
}

// migrateAlone: other tables, also those of other migration tools, are not ours.
func migrateAlone(b *bench) {
	b.exec("CREATE TABLE schema_migrations (version INTEGER NOT NULL)")
	b.exec("INSERT INTO schema_migrations (version) VALUES (42)")
	b.open()
	if got := b.dump("schema_migrations"); len(got) != 1 || !strings.Contains(got[0], "42") {
		b.tb.Errorf("schema_migrations is now %q", got)
	}
	if got := b.dump(TakenTable); len(got) != 1 {
		b.tb.Errorf("%s is now %q", TakenTable, got)
	}
}
