package middleware

import (
	"log/slog"
	"path"
	"reflect"
	"runtime"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// hiding are Watermill's middlewares that run a handler again, or hide that it failed, by their
// files. Inside the inbox they commit what failed, unless the handler is typed.
var hiding = map[string]string{"retry.go": "Retry", "poison.go": "PoisonQueue", "ignore_errors.go": "IgnoreErrors", "deduplicator.go": "Deduplicator"}

// warnOfHiding logs that the inbox wraps one of them. It sees only the next one: what that wraps
// is not known. The file tells, because an inlined function literal is named after its caller.
func (in *Inbox) warnOfHiding(next message.HandlerFunc) {
	pc := reflect.ValueOf(next).Pointer()
	of := runtime.FuncForPC(pc)
	if of == nil { // a nil handler
		return
	}
	file, _ := of.FileLine(pc)
	dir, base := path.Split(file)
	name, found := hiding[base]
	if !found || !strings.HasSuffix(dir, "/message/router/middleware/") || !strings.Contains(dir, "watermill") {
		return
	}
	in.config.Logger.Warn("millpond: a middleware inside the inbox may commit what a failed handler has written: remove it, and see docs/how-to/replace-watermill-middlewares.md",
		slog.String("middleware", name))
}
