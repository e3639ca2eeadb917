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
// It checks claims, races, byte-exact ids, unknown commits, quarantine, the registry of
// consumers, the schema, what becomes of failed messages and what operators decide, and
// handlers that hide errors, end or leak their transaction, run twice, ack too early or
// exit their goroutine. After every step the committed state is read on a connection that
// is not the store's, and these must hold:
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
// The suite reads the tables and columns that docs/stores.md lists, through database/sql.
// It makes tables of its own, beginning with storetest_, and imports no driver.
//
// A check that does not apply to a database is logged with the reason. None is skipped silently:
// an adapter that does not mention an act fails.
package storetest
