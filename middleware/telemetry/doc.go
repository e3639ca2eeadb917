// Package telemetry makes OpenTelemetry spans and metrics of the inbox. Of the module's
// packages only this one and router/telemetry import OpenTelemetry: a program that imports
// neither does not link it.
//
// It needs one line beside the inbox:
//
//	t, err := telemetry.New(telemetry.Config{System: "kafka"})
//	…
//	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
//		Service: "billing",
//		Hooks:   []middleware.Hook{t},
//	})
//
// # Spans
//
// Each delivery has a span "process <destination>" of kind CONSUMER, with child spans
// "claim" and "commit". The handler's context carries it, so instrumented database drivers
// and HTTP clients make their spans beneath it. Its parent is the span that made the
// message, if the metadata has one; or it is linked to that span (Config.Relation). A
// duplicate's span has a link to the delivery that did the work, whose trace the message's
// row keeps.
//
// [Telemetry.Publisher] decorates a publisher: a span "send <destination>" of kind
// PRODUCER, and its context in the metadata of the message.
//
// # Metrics
//
// docs/tracing.md lists them, with units and attributes. No attribute grows with the number of
// messages: there are no ids, no topics (only the kinds of Config.DestinationTemplate) and no
// texts of errors.
//
// # Logs
//
// [LogHandler] adds the ids of the trace and the span to log lines.
//
// # Untrusted trace context
//
// Malformed or oversized trace context is ignored: a new trace begins. Deliveries do not wait for
// a slow or unreachable exporter, because the SDK drops spans rather than wait.
package telemetry
