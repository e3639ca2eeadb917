package middleware

import (
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// hiding are Watermill's middlewares that run a handler again, or hide that it failed. Inside the
// inbox they commit what failed, unless the handler is typed.
var hiding = []string{"Retry", "poisonQueue", "IgnoreErrors", "(*Deduplicator)"}

// warnOfHiding logs that the inbox wraps one of them. It sees only the innermost neighbour: what
// is behind another middleware has no name.
func (in *Inbox) warnOfHiding(next message.HandlerFunc) {
	if next == nil {
		return
	}
	name := runtime.FuncForPC(reflect.ValueOf(next).Pointer()).Name()
	_, name, found := strings.Cut(name, "watermill/message/router/middleware.")
	if !found || !slices.ContainsFunc(hiding, func(one string) bool { return strings.HasPrefix(name, one+".Middleware") }) {
		return
	}
	name, _, _ = strings.Cut(name, ".Middleware")
	in.config.Logger.Warn("millpond: a middleware inside the inbox may commit what a failed handler has written: remove it, and see docs/how-to/replace-watermill-middlewares.md",
		slog.String("middleware", strings.Trim(name, "(*)")))
}
