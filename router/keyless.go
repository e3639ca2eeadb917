package router

import (
	"log/slog"
	"slices"
	"strings"
)

// adviseOfKeys warns about settings that need something that the broker's messages may lack: such
// messages would be quarantined, or silently lose their order. It is no error, because some of a
// broker's queues may have it.
func (r *run) adviseOfKeys() {
	can, in := r.broker.Capabilities(), &r.inboxed
	warn := func(field, value, what, fix string) {
		r.log.Warn("millpond: "+field+" is "+value+", and messages of this broker have no "+what+unless(what, can.System)+": "+fix,
			slog.String("field", field), slog.String("broker", can.System))
	}
	text, _ := in.Keys.MarshalText() // never fails
	for _, link := range []struct {
		name, what string
		there      bool
	}{{"broker_key", "keys", can.Key}, {"native", "native ids", can.NativeID}, {"coordinates", "coordinates", can.Coordinates}} {
		if !link.there && slices.Contains(strings.Split(string(text), ", "), link.name) {
			warn("inbox.keys", "["+string(text)+"]", link.what, "take another, such as metadata:<field>, or messages without an id go to quarantine")
		}
	}
	if can.Key {
		return
	}
	const fix = "take metadata:<field>, or their order is not kept"
	if in.Retry.Order == "key" {
		warn("retry.order", "key", "keys", fix)
	}
	for _, h := range r.handlers {
		if own := in.RetryByHandler[h.name].Order; own == "key" && own != in.Retry.Order {
			warn("handlers."+h.name+".retry.order", own, "keys", fix)
		}
	}
}

// unless returns the exception: which messages of a broker have it.
func unless(what, system string) string {
	switch {
	case system == "aws_sqs":
		return ", unless their queues are FIFO queues"
	case system == "nats" && what == "native ids":
		return ", unless their producers set Nats-Msg-Id"
	case system == "memory" && what == "keys":
		return ", unless its URL has key_metadata"
	}
	return ""
}
