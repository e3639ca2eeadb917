// Package stores is the contract between millpond and a database.
//
// A store keeps one inbox row per (consumer, message id) in the same database,
// and in the same transaction, as the effects of the handler. That is what makes
// those effects happen once however often the broker delivers the message.
//
// The contract is a set of small interfaces, one per caller: [Inbox] is what the
// middleware needs to run a delivery, [Registry] what it needs at start,
// [Quarantine] keeps messages that cannot have a row of their own, [Migrator]
// creates and checks the tables. [Store] is all of them, as an adapter returns it.
// Extra powers are optional interfaces found by assertion: [Resolver].
//
// The package imports no driver and no message library, so that a program links
// exactly the adapters that it names. Adapters live in packages beside it; package
// storetest proves that one keeps the contract.
package stores
