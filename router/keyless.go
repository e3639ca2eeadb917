package router

import (
	"log/slog"
	"slices"
	"strings"
)

// adviseOfKeys warns of settings that need a key on each message, where the broker's messages
// may have none: their order would be lost silently. It is no error, because some of a
// broker's queues may have keys.
func (r *run) adviseOfKeys() {
	can := r.broker.Capabilities()
	if can.Key {
		return
	}
	why := "messages of this broker have no keys"
	switch can.System {
	case "memory":
		why += ", unless its URL has key_metadata"
	case "aws_sqs":
		why += ", unless their queues are FIFO queues"
	}
	warn := func(field, value, fix string) {
		r.log.Warn("millpond: "+field+" is "+value+", and "+why+": "+fix,
			slog.String("field", field), slog.String("broker", can.System))
	}
	in := &r.inboxed
	if text, err := in.Keys.MarshalText(); err == nil && slices.Contains(strings.Split(string(text), ", "), "broker_key") {
		warn("inbox.keys", "["+string(text)+"]", "take another, such as metadata:<field>, or messages without an id go to quarantine")
	}
	const fix = "take metadata:<field>, or their order is not kept"
	if in.Retry.Order == "key" {
		warn("retry.order", "key", fix)
	}
	for _, h := range r.handlers {
		if own := in.RetryByHandler[h.name].Order; own == "key" && own != in.Retry.Order {
			warn("handlers."+h.name+".retry.order", own, fix)
		}
	}
}
