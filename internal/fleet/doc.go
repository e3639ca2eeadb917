// Package fleet runs worker processes under one parent that plays the broker, and
// hurts them on purpose: it delivers messages twice and out of order, and stops,
// continues, ends and kills the workers in the middle of their work.
//
// The parent, [Run], owns every unsettled delivery. A worker is the same or another
// program, started anew whenever it ends; it calls [ConnectStdio] and gets a
// Watermill subscriber behind the brokers contract. What a worker had not settled
// when it died is delivered again, counted and flagged as redelivered.
//
//	if fleet.IsWorker() {
//		worker, err := fleet.ConnectStdio()
//		router.AddConsumerHandler("stock", "orders", worker, handler)
//		err = router.Run(ctx) // returns when the parent needs the worker no more
//		return worker.Close()
//	}
//	report, err := fleet.Run(ctx, fleet.Config{Source: orders, Command: fleet.Self()})
//
// Frames travel over the worker's standard input and output, as package
// encoding/gob writes them; a frame cut off by a kill is ignored. A worker leaves
// when its input ends, so none outlives its parent.
//
// The seed decides what the parent decides alone: which messages come twice, how
// far apart, in which order deliveries become due, and the schedule that
// [RandomKills] makes. Which process is how far at that moment is decided by the
// operating system, and with it which worker gets which delivery.
package fleet
