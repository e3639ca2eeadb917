// Package middleware makes Watermill handlers safe to redeliver.
//
// [Inbox] is a Watermill router middleware: it claims the message in the store,
// runs the handler in the claiming transaction, commits, and only then lets the
// router ack. The handler's effects in that database happen once per consumer and
// message, however often the broker delivers it. No other effect is promised.
//
//	store, err := postgres.New(pool, postgres.Config{})
//	_, err = store.Migrate(ctx) // creates the tables, once
//	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "billing"})
//	router.AddMiddleware(inbox.Middleware)
//	router.AddConsumerHandler("stock", "orders", subscriber, postgres.Handler(deduct))
//	retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
//	go retries.Run(ctx) // runs failed messages again, beside router.Run
//
// Order matters: Watermill runs the middleware added first outermost. Add Tracing and
// Recoverer before the inbox; then [Arrival] and middlewares that change messages; then the
// inbox. Leave out Retry and PoisonQueue: [RetryPolicy] and [DeadLetterConfig] do their
// work. Inside the inbox Retry would run the handler again in a transaction that may be aborted,
// and PoisonQueue would hide its error. A typed handler's attempt then fails; of another
// handler, the writes of a failed run are committed.
package middleware
