// Package crash is the crash harness: it runs a service behind the inbox in several
// processes, hurts them and their database in every way that the design promises to
// survive, and then holds what is committed against a ledger of what was published and
// acked. All of it is in the tests.
//
// The workers are this test binary again (package fleet). Their handlers write two
// effects, with a counter between them, into tables without a unique key, so nothing
// but millpond keeps an effect from being written twice. What a handler does besides
// is named by the message's id: it fails, panics, exits, is dishonest to its transaction,
// or does what must not touch other messages, such as to change its session. A retry worker runs beside each router, and in some tests an operator
// that retries, discards, releases and rejects.
//
//	points_test.go    killed at each step of a delivery, of a failure, of a redrive
//	failing_test.go   poison, order keys, and a store that is down for a while
//	clocks_test.go    the database's clock days away from that of all workers
//	stopped_test.go   stopped at each step, for longer than the server waits
//	random_test.go    killed, stopped and ended at random times
//	outages_test.go   the server killed and cut off, replies to COMMIT lost
//	registration_test.go  the server killed while consumers are registered
//	variants_test.go  one rule broken at a time: the harness must notice; those about
//	                  failures are in failure_variants_test.go, those about other
//	                  messages in border_variants_test.go
//
// A system is a database with a client: system_test.go is what they have in common,
// dialect_test.go what differs in SQL, backend_test.go what a worker opens.
//
//	postgres_test.go  PostgreSQL with pgx, directly and behind PgBouncer
//	sqldb_test.go     PostgreSQL with database/sql: our connector, and lib/pq
//	mysql_test.go     MariaDB and MySQL
//	sqlite_test.go    SQLite
//
// PostgreSQL with pgx, MariaDB and SQLite have everything every day, the others one short
// TestRandom, and the rest in the soak. What a store says that it cannot promise, its
// system leaves out: dialect.without.
//
// Package fleet feeds and hurts the workers. worker_test.go is the service in them,
// handler_test.go its handlers, watched_test.go announces what the store is asked for.
// session_test.go and echo_test.go are what handlers do that must not touch other messages:
// they change settings of their sessions, and publish in the process, with their contexts.
// callback_test.go has the program's other functions, which panic or refuse for a while.
// ledger_test.go is what the parent writes down, invariants_test.go and
// failure_invariants_test.go what it checks.
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
// and MILLPOND_SOAK=500 makes TestRandom go on until that many workers were killed
// on each system; make soak does it.
//
// When something is lost or doubled, the test shows the rows of the message and
// everything that happened to it, in every process, in order.
package crash
