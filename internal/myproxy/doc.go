// Package myproxy stands between a client of MySQL or MariaDB and its server, for tests
// and benchmarks. It follows the protocol, so it can count what a client costs and do
// what a network does at the worst moment.
//
//	proxy, err := myproxy.Start(databaseURL) // mysql://user:password@host:port/database
//	if err != nil { … }
//	defer proxy.Close()
//	store, err := mysql.Open(ctx, proxy.URL())
//
// Counting:
//
//	before := proxy.Stats()
//	… // on a connection that has prepared its statements before
//	cost := proxy.Stats().Since(before) // cost.RoundTrips == 3, cost.Commits == 1
//
// A round trip is one however many commands were sent before the first answer was
// awaited, in one packet or in several; commands without an answer, such as the closing of
// a prepared statement, are none. The preparing of a statement is a round trip of its own.
//
// Faults are set at any time: LoseCommitReply, LoseCommitRequest, SetRandomFaults,
// DelayCommitReply, Freeze, CutAll, all of dbproxy.Proxy. They find a COMMIT sent as text,
// alone, among several statements or in a compound one, prepared, and among commands that
// were sent at once. A text that may commit is taken for one that does.
//
// The server's answers say whether a transaction is open. So DDL that ends one counts as a
// commit, and a COMMIT outside any does not; a statement that is its own transaction does
// not count either.
//
// Both sides are TCP without TLS and compression, which clients are told the server does
// not have. Everything else is passed on as the bytes that came. Cursors, replication and
// LOAD DATA LOCAL inside several statements are not followed.
package myproxy
