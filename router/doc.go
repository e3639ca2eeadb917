// Package router runs a service from a configuration and handlers.
//
//	svc, err := router.Load(ctx, "millpond.yaml")
//	svc.Handle("stock", "orders", postgres.Handler(reserve))
//	err = svc.Run(ctx)
//
// The program imports the adapters of its broker and store; their URLs are in the file or the
// environment. To change the broker, change its URL.
//
// A [Service] wires broker, store, inbox and retry worker, and checks at start that they fit
// together. It stops when its context ends or the process gets SIGTERM or SIGINT: the intake
// stops, and running handlers finish or are rolled back by the drain timeout. No message is acked
// before its effects are committed. A second signal ends the process at once.
//
// # Configuration
//
// [StarterConfig], printed by millpond config init, explains every field. Every field outside of
// handlers has a variable: MILLPOND_ and its path in capitals, with an underscore for each dot,
// such as MILLPOND_INBOX_HOLD_LIMIT. Variables override the file. Misspelt fields and variables
// are errors. All errors are reported at once, one per line, without secrets.
//
// # Groups
//
// Each handler has its own subscriber and consumer group: handler "stock" of service billing
// reads as billing.stock. So two handlers of one topic both get every message, and a new handler
// does not disturb the others. To use an existing group, set handlers.<name>.group.
//
// # Middlewares
//
// The inbox is next to the handler. Middlewares of [Service.Use] are around the inbox, for
// messages from the broker and for retried messages. Middlewares of the router of
// [Service.Watermill] are around those, for messages from the broker only.
package router
