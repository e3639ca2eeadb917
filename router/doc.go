// Package router runs a service from a configuration and handlers.
//
//	svc, err := router.Load(ctx, "millpond.yaml")
//	svc.Handle("stock", "orders", postgres.Handler(reserve))
//	err = svc.Run(ctx)
//
// The program imports the adapters of its broker and store; the file, or the environment,
// says which. To move from one broker to another is to change one URL.
//
// A [Service] wires broker, store, inbox and retry worker, and checks at its start that
// they fit together. It stops when its context ends or the process gets SIGTERM or SIGINT:
// the intake stops, handlers that run finish, or are rolled back when the drain timeout is
// over, and nothing is acked that was not committed. A second signal ends the process at
// once.
//
// # Configuration
//
// [StarterConfig], printed by millpond config init, explains every field. Every field
// outside of handlers has a variable: MILLPOND_ and its path in capitals, with an
// underscore for each dot, such as MILLPOND_INBOX_HOLD_LIMIT. Variables count more than
// the file. Fields and variables that are misspelt are errors. All mistakes are reported
// at once, a line for each, without secrets.
//
// # Groups
//
// Each handler has a subscriber, and a group at the broker, of its own: "stock" of the
// service billing reads as billing.stock. So two handlers of one topic each get every
// message, and adding one does not disturb another. A group that exists already is named
// in handlers.<name>.group.
//
// # Middlewares
//
// The inbox is next to the handler. What [Service.Use] adds stands around it, for messages
// from the broker and for those that are tried again; what the program adds to the router
// of [Service.Watermill] stands around that, for messages from the broker only.
package router
