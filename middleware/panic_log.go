package middleware

import (
	"log/slog"

	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// panicLog logs panics of the program's functions that did not end the delivery. It limits the
// lines, because every message may cause one.
type panicLog struct {
	log   *slog.Logger
	limit loglimit.Limit
}

func newPanicLog(log *slog.Logger) *panicLog { return &panicLog{log: log} }

// note takes what callback.Call returned for a function. key may be the zero value.
func (p *panicLog) note(function string, key stores.Key, err error) {
	if err == nil {
		return
	}
	named := slog.String("function", function)
	tell := func(left int) {
		p.log.Error("millpond: a function of the program panicked more often than is logged",
			named, slog.Int("not_logged", left), slog.Duration("within", loglimit.Within))
	}
	if !p.limit.Pass(loglimit.Kind{Cause: function}, tell) {
		return
	}
	attrs := []any{named, slog.String("error", text.Printable(err))}
	if key.ID != nil {
		attrs = append(attrs, slog.String("consumer", key.Consumer.String()), slog.String("id", text.Word(keys.Format(key.ID))))
	}
	p.log.Error("millpond: a function of the program panicked, and is passed over", attrs...)
}
