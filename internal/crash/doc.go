// Package crash is the crash harness: it runs a service behind the inbox in several
// processes, hurts them and their database in every way that the design promises to
// survive, and compares what is committed with a ledger of what was published and acked.
// All of it is in the tests.
//
// The workers are this test binary again: package fleet starts, feeds and hurts them. A
// handler writes two effects, with a counter between them, into tables without a unique
// key, so nothing but millpond keeps an effect from being written twice. The message's id
// names what it does besides: it fails, panics, exits, is dishonest to its transaction, or
// does what must not touch other messages. A retry worker runs beside each router, and in
// some tests an operator who retries, discards, releases, rejects and breaks reservations.
//
//	points, failing, clocks, stopped, random, outages, registration   the tests
//	variants, failure_variants, border_variants   one rule broken at a time: it must be noticed
//	system, dialect, backend                 a database with a client: shared, SQL, what a worker opens
//	postgres, sqldb, mysql, sqlite           the systems
//	dynamodb                                 one without SQL: its handlers, its faults, what is committed
//	worker, handler, watched                 the service, its handlers, what the store is asked for
//	session, echo, callback                  what handlers and the program's functions do to others
//	leases, lease_invariants, lease_variants   handlers under leases, and what is broken there
//	batches                                  handlers that share transactions, and what is broken there
//	facts                                    what attempts read of deliveries, and what only was reserved
//	ledger, invariants, failure_invariants   what the parent writes down, and what it checks
//
// PostgreSQL with pgx, MariaDB, SQLite and DynamoDB have everything, by turns of the day (package rotation),
// the others one short TestRandom, and all have the rest in the soak. dialect.without names what a store cannot
// promise. DynamoDB Local is behind a proxy that adds conflicts, throttling, lost and late answers, and another clock.
//
// Reservations of the retry worker are shortened in the workers, so that what a killed
// one had is tried again within the test; nothing else of the store is changed.
//
// Every run prints its seed. The seed decides what is published, what handlers do, who
// is hurt when, and what the network loses; not how far a process is at that moment.
// A run is repeated with
//
//	MILLPOND_SEED=42 go test -race -v -run 'TestRandom/postgres' ./internal/crash
//
// MILLPOND_SOAK=500 makes TestRandom, TestLeasesAtRandom and TestBatches go on until that many workers were killed on
// each system; make soak does it. A test that loses or doubles a message shows its rows and its history in all processes.
package crash
