// Package middleware makes Watermill handlers safe to redeliver.
//
// [Inbox] is a Watermill router middleware: it claims the message in the store,
// runs the handler in the claiming transaction, commits, and only then lets the
// router ack. The handler's effects in that database happen once per consumer and
// message, however often the broker delivers it. No other effect is promised.
//
//	store, err := postgres.New(pool, postgres.Config{})
//	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "billing"})
//	router.AddMiddleware(inbox.Middleware)
//	router.AddConsumerHandler("stock", "orders", subscriber, postgres.Handler(deduct))
//
// Order matters: Watermill runs the middleware added first outermost. Tracing and
// Recoverer go outside the inbox, that is before it, and so do those that change messages,
// behind [Arrival]. Leave out Retry and PoisonQueue: [RetryPolicy] and [DeadLetterConfig] do
// what they do. Inside the inbox they would retry in an aborted transaction, or hide the
// handler's error: then a typed handler's attempt fails, and half of another's is committed.
package middleware
