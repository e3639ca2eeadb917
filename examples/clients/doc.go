// Package clients has one handler five times: with bun, ent, gorm, sqlx and sqlc on PostgreSQL.
// Each writes in the transaction in which the inbox has claimed the message, so its
// effects happen once, however often the message is delivered and whatever fails.
//
//	db, err := sqldb.OpenDB("postgres://user:password@host/database")
//	…
//	store, err := sqldb.New(db, sqldb.Config{})
//	…
//	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "bank"})
//	…
//	router.AddMiddleware(inbox.Middleware)
//	router.AddConsumerHandler("deposits", "deposits", subscriber, clients.Bun(db))
//
// The rule is the same for every client: work on the *sql.Tx
// that the handler is given, with the handler's context, and leave its commit and rollback
// to the inbox. What goes through the *sql.DB instead is another transaction: it stays
// where the handler fails, happens again with the next attempt, and takes a second
// connection while the first is held.
//
// Beside them stands a handler on watermill-sql, which brings the messages and publishes
// in the inbox's transaction; see docs/watermill-sql.md.
//
// It is a module of its own so that millpond's users do not depend on these clients.
package clients
