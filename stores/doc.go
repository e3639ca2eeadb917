// Package stores is the contract between millpond and a database.
//
// A store keeps one inbox row per (consumer, message id) in the same database, and in the same
// transaction, as the effects of the handler. So those effects happen once, however often the
// broker delivers the message.
//
// The contract is a set of small interfaces, one per caller: [Registry] and [Inbox] run
// deliveries (an [Attempt] each), [Failures] records failed attempts, [Retries] hands parked
// messages to retry workers, [Quarantine] keeps messages that cannot have a row of their own,
// [Inspector] (with [QuarantineInspector]) is for operators, and [Migrator] creates and checks
// the tables. [Store] combines them; an adapter returns one.
//
// Powers that not every store has are optional interfaces, found by assertion:
//
//   - for outputs [Outbox] with [Leases], [OutboxInspector], [OutboxWaker] and [OutputChecker],
//     and [Emitter] of an attempt;
//   - for handlers under leases [LeaseInbox];
//   - for messages that share a transaction [Batcher], with a [Batch] of [Member] values, some of
//     them [Droppable];
//   - for crashes and unknown commits [Attendance] and [Resolver], and [Interruptible],
//     [Refusing] and [Escapable] of an attempt;
//   - for operation [Waker], [PoolReporter], [Purger], [Examiner] and [Granter].
//
// The package imports no driver and no message library, so that a program links only the adapters
// that it imports. Adapters live in packages beside it; package storetest proves that an adapter
// keeps the contract.
package stores
