// Package kafka is the crash harness over Kafka: several processes of one service read a
// topic as one consumer group, behind the inbox, while they and the broker are hurt. All
// of it is in the tests.
//
// The workers are this test binary again. Package fleet starts, stops and kills them;
// what it delivers are ticks, by which it times its faults. The messages come from a
// broker of the test's own, through brokers/kafka, and a retry worker runs beside each
// router. The parent publishes while it hurts: it kills workers at random moments and at
// named points (in the handler, between commit and ack, in the middle of a rebalance,
// while offsets are being committed), and stops some for longer than the session
// timeout, so that others get their partitions while they hold a claim, which they then
// commit or roll back. The broker is killed as well, and comes back.
//
// When everything has come to rest, each message that was published, however often, must
// have had its effects once, or none if it has failed for good; every offset must be
// committed; and no worker may have anything open.
//
//	worker_test.go      the service in a worker
//	handler_test.go     what its handler does
//	history_test.go     the points, and what each process writes down
//	database_test.go    the stores
//	cluster_test.go     the broker, its outages, what is published and committed
//	faults_test.go      what is done to the workers, and when
//	trial_test.go       one run
//	invariants_test.go  what must hold
//	crash_test.go       the tests
//
// Every run prints its seed, which decides what is published and who is hurt when, not
// how far a process is at that moment:
//
//	MILLPOND_SEED=42 go test -race -v -run 'TestKilled/postgres' ./internal/crash/kafka
//
// MILLPOND_SOAK=n makes TestKilled go on until n workers, at most 100, and a broker for
// each eleven of them were killed on each store, a quarter of them with the protocol of
// KIP-848; make soak does it.
package kafka
