// Package stores is the contract between millpond and a database.
//
// A store keeps one inbox row per (consumer, message id) in the same database,
// and in the same transaction, as the effects of the handler. So those effects happen
// once, however often the broker delivers the message.
//
// The contract is a set of small interfaces, one per caller: [Registry] and [Inbox] run
// deliveries (an [Attempt] each), [Failures] records failed attempts, [Retries] hands
// parked messages to retry workers, [Quarantine] keeps messages that cannot have a row of
// their own, [Inspector] (with [QuarantineInspector]) is for operators, and [Migrator]
// creates and checks the tables. [Store] is these, as an adapter returns it. What not
// every store can do are optional interfaces, found by assertion: of stores [Outbox] (with
// [Leases]), [OutboxInspector], [OutboxWaker] and [OutputChecker], [LeaseInbox] for handlers under leases, [Batcher] for messages that share a
// transaction (a [Batch], with a [Member] each), [Attendance], [Resolver], [Waker], [PoolReporter], [Purger],
// [Examiner] and [Granter]; of members [Droppable]; of attempts [Emitter], [Interruptible], [Refusing] and
// [Escapable].
//
// The package imports no driver and no message library, so that a program links
// only the adapters that it imports. Adapters live in packages beside it; package
// storetest proves that one keeps the contract.
package stores
