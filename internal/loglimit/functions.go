package loglimit

import "log/slog"

// Functions logs failures of the program's functions that are passed over. It limits the lines,
// because every message may cause one. It is safe for concurrent use.
type Functions struct {
	log   *slog.Logger
	limit Limit
}

// NewFunctions returns one that logs to log.
func NewFunctions(log *slog.Logger) *Functions { return &Functions{log: log} }

// Failed logs that a function failed or panicked, with attributes that tell why.
func (f *Functions) Failed(function string, attrs ...any) {
	named := slog.String("function", function)
	tell := func(left int) {
		f.log.Error("millpond: a function of the program failed more often than is logged",
			named, slog.Int("not_logged", left), slog.Duration("within", Within))
	}
	if f.limit.Pass(Kind{Cause: function}, tell) {
		f.log.Error("millpond: a function of the program failed, and is passed over", append([]any{named}, attrs...)...)
	}
}
