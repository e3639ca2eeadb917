// Package telemetry makes OpenTelemetry spans and metrics of what the inbox does. It is
// the only package of the module that knows OpenTelemetry: a program that does not import
// it links nothing of it.
//
// One line beside the inbox is all that it takes:
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
// Each delivery has a span "process <destination>" of kind CONSUMER around everything
// that the inbox does with it, with child spans "claim" and "commit". The handler's
// context carries it, so what instruments database drivers and HTTP clients makes its
// spans beneath. Its parent is the span in which the message was made, if the metadata
// tell one, or it is linked to that (Config.Relation). A duplicate's span has a link to
// the delivery that did the work, whose trace the message's row keeps.
//
// [Telemetry.Publisher] decorates a publisher: a span "send <destination>" of kind
// PRODUCER, and its context in the metadata of the message.
//
// # Metrics
//
// docs/tracing.md lists them, with units and attributes. None has an attribute whose
// values could grow with the messages: no ids, no topics (unless
// Config.DestinationTemplate makes kinds of them), no texts of errors.
//
// # Logs
//
// [LogHandler] adds the ids of the trace and of the span to what is logged.
//
// # What comes from outside
//
// Malformed or oversized trace context is as good as none: the trace begins anew. An
// exporter that is slow or down is the business of the SDK, which drops spans rather than
// wait; nothing here waits for it.
package telemetry
