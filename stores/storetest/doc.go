// Package storetest proves that a store keeps the contract of package stores, alone
// and under the inbox of package middleware.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			NewDatabase: newDatabase, // an empty database for each check
//			Write:       write,       // an honest effect in the transaction of a context
//			Handler:     handler,     // the adapter's typed helper
//			Ways:        ways,        // how SQL text can be sent with the native transaction
//			Acts:        acts,        // dishonest acts that take the driver's own calls
//			Lacks:       lacks,       // those that this database does not have, and why
//		})
//	}
//
// # What is checked
//
// Claims, races, byte-exact ids, unknown commits, quarantine, the registry of
// consumers, the schema, and handlers that do what they must not: hide errors, end
// the transaction in every way their driver offers, leak it, run twice, ack too
// early, exit their goroutine. And what becomes of messages that fail: how they are
// recorded, looked at, taken over, handed to retry workers, kept in order, and what
// operators see and decide. After every step the committed state is read on a
// connection that is not the store's, and these must hold:
//
//   - each effect of a message is committed at most once, and all effects of one run
//     of the handler are committed exactly if the message's row is completed;
//   - no message is acked that is neither completed, nor among the failures with its
//     content, parked or failed for good, nor in quarantine;
//   - a message given back runs again, until it is acked, and a parked one is run by
//     the retry worker;
//   - a message delivered again after that changes nothing;
//   - a message has a row among the failures exactly if its row in the inbox is
//     pending, failed or discarded, in the same status.
//
// # What the suite needs of a database
//
// It reads through database/sql, with plain SELECTs and without parameters:
//
//	millpond_consumer    id, service, handler
//	millpond_inbox       consumer, message_id, status, fingerprint
//	millpond_failure     number, revision, consumer, message_id, status, placement, content,
//	                     presumed, reserved, attempts, uncounted, redrives, due_at (its order, and
//	                     whether it is null), class, cause, error, history, topic, coordinates,
//	                     order_key, uuid, codec, metadata, payload
//	millpond_quarantine  id, consumer, message_id, fingerprint, existing, reason, detail,
//	                     topic, coordinates, uuid, codec, one_way, metadata, payload, seen, status
//	millpond_audit       any
//	millpond_schema      version, compatible, name (it inserts a row)
//
// A status is the number or the name that package stores gives it, other states are
// numbers, and a version is that of the number and the revision in this module's own
// stores. One check writes what cannot be read into the metadata of a failure. Some
// delete all rows of these tables in between.
//
// It makes its own tables, beginning with storetest_. It imports no driver.
//
// Checks that a database cannot be put to are logged with the reason. None is ever
// skipped silently: an adapter that does not mention an act fails.
package storetest
