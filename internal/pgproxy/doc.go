// Package pgproxy stands between a PostgreSQL client and its server, for tests and
// benchmarks. It follows the protocol, so it can count what a client costs and do
// what a network does at the worst moment.
//
//	proxy, err := pgproxy.Start(databaseURL)
//	if err != nil { … }
//	defer proxy.Close()
//	conn, err := pgx.Connect(ctx, proxy.URL())
//
// Counting:
//
//	before := proxy.Stats()
//	… // on a connection that has prepared its statements before
//	cost := proxy.Stats().Since(before) // cost.RoundTrips == 3, cost.Commits == 1
//
// A client that sends Flush, waits for the answer and goes on begins another round trip.
// Commits are replies COMMIT, rollbacks replies ROLLBACK, whatever was asked for.
//
// Faults are set at any time: LoseCommitReply, LoseCommitRequest, SetRandomFaults,
// DelayCommitReply, Freeze, CutAll, all of dbproxy.Proxy. They find a COMMIT sent by the
// simple protocol, as the last statement of several, prepared under whatever name, and
// inside a pipeline.
//
// Both sides are TCP without TLS. Messages are passed on as the bytes that came;
// package pgproto3 reads the few that matter.
package pgproxy
