package middleware

import (
	"log/slog"

	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// panicLog logs panics of the program's functions that did not end the delivery.
type panicLog struct{ functions *loglimit.Functions }

func newPanicLog(log *slog.Logger) *panicLog { return &panicLog{loglimit.NewFunctions(log)} }

// note takes what callback.Call returned for a function. key may be the zero value.
func (p *panicLog) note(function string, key stores.Key, err error) {
	if err == nil {
		return
	}
	attrs := []any{slog.String("error", text.Printable(err))}
	if key.ID != nil {
		attrs = append(attrs, slog.String("consumer", key.Consumer.String()), slog.String("id", text.Word(keys.Format(key.ID))))
	}
	p.functions.Failed(function, attrs...)
}
