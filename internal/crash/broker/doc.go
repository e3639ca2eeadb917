// Package broker is the crash harness over real brokers: several processes of one service
// read a topic as one consumer, behind the inbox, while they and the broker are hurt. All
// of it is in the tests.
//
// The workers are this test binary again. Package fleet starts, stops and kills them;
// what it delivers are ticks, by which it times its faults. The messages come from a
// broker of the test's own, through its adapter, and a retry worker runs beside each
// router. The parent publishes while it hurts: it kills workers at random moments and at
// named points (in the handler, between commit and ack, in the middle of a rebalance,
// while offsets are being committed), and stops some for longer than the broker waits
// for them, so that others get their deliveries while they hold a claim, which they then
// commit or roll back. The broker is killed as well, and comes back.
//
// When everything has come to rest, each message that was published, however often, must
// have had its effects once, or none if it has failed for good, or be in quarantine if the
// program's function for reading it panics; each attempt must have read the facts of one of
// its deliveries; the broker must have nothing left; and no worker may have anything open.
//
//	worker_test.go      the service in a worker
//	handler_test.go     what its handler does
//	history_test.go     the points, and what each process writes down
//	database_test.go    the stores
//	kind_test.go        what a broker has to offer, and its outages
//	kafka_test.go …     one broker each
//	ledger_test.go      what is published
//	faults_test.go      what is done to the workers, and when
//	trial_test.go       one run
//	invariants_test.go  what must hold
//	crash_test.go       the tests
//	poison_test.go      a message that ends its process, each time
//
// Every run prints its seed, which decides what is published and who is hurt when, not
// how far a process is at that moment:
//
//	MILLPOND_SEED=42 go test -race -v -run 'TestKilled/kafka/postgres' ./internal/crash/broker
//
// MILLPOND_SOAK=n makes TestKilled go on until n workers, at most 100, and a broker for
// each eleven of them were killed on each broker and store, a quarter of Kafka's with the
// protocol of KIP-848; make soak does it.
package broker
