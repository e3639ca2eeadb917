// Package dbproxy stands between a client of a database and its server, for tests and
// benchmarks. It counts what a client costs and does what a network does at the worst
// moment. What is particular to a protocol stands in a [Session]: packages pgproxy and
// myproxy have one each, and are what tests use.
//
// Counting: [Proxy.Stats]. What a reply counts is counted before the reply is passed on,
// so a client that has its answer finds it in the statistics.
//
// Faults are set at any time: [Proxy.LoseCommitReply], [Proxy.LoseCommitRequest],
// [Proxy.SetRandomFaults], [Proxy.DelayCommitReply], [Proxy.Freeze], [Proxy.CutAll].
// [Proxy.SetLatency] makes the network longer.
//
// Both sides are TCP without TLS. Messages are passed on as the bytes that came, but for
// what a session must change so that it can go on reading them.
package dbproxy
