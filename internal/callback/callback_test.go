package callback_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/callback"
)

type unspeakable struct{}

func (unspeakable) Error() string { panic("in Error") }

func TestWhatAFunctionComesTo(t *testing.T) {
	t.Parallel()
	calls := map[string]func(string, func() error) error{"Call": callback.Call, "Apart": callback.Apart}
	for name, call := range calls {
		for what, test := range map[string]struct {
			f    func() error
			want string // the beginning
		}{
			"nothing":       {func() error { return nil }, ""},
			"error":         {func() error { return io.EOF }, "EOF"},
			"panic":         {func() error { panic("boom") }, "Config.Key panicked: boom (at "},
			"runtime error": {func() error { return []error{}[len(name)] }, "Config.Key panicked: runtime error: index out of range"},
			"nil":           {func() error { panic(nil) }, "Config.Key panicked: panic called with nil argument"}, //nolint:govet // somebody may
			"no words":      {func() error { panic(unspeakable{}) }, "Config.Key panicked: %!v(PANIC=Error method: in Error)"},
		} {
			err := call("Config.Key", test.f)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			if what == "panic" && !strings.Contains(err.Error(), "callback_test.TestWhatAFunctionComesTo") {
				t.Errorf("%s: it does not say where: %v", name, err)
			}
		}
	}
	if err := callback.Apart("Config.Key", func() error { runtime.Goexit(); return nil }); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Error(err)
	}
}

// What a panic says may come from a message.
func TestTextIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 14<<20)
	for _, value := range []any{long, errors.New(long), []string{long}} {
		if err := callback.Call("f", func() error { panic(value) }); len(err.Error()) > 2<<10 {
			t.Errorf("%T: %d bytes", value, len(err.Error()))
		}
	}
}

type panickingHandler struct{}

func (panickingHandler) Enabled(context.Context, slog.Level) bool  { panic("Enabled") }
func (panickingHandler) Handle(context.Context, slog.Record) error { panic("Handle") }
func (panickingHandler) WithAttrs([]slog.Attr) slog.Handler        { panic("WithAttrs") }
func (panickingHandler) WithGroup(string) slog.Handler             { panic("WithGroup") }

// onlyHandle lets lines reach Handle.
type onlyHandle struct{ panickingHandler }

func (onlyHandle) Enabled(context.Context, slog.Level) bool { return true }

func TestLoggerSurvivesItsHandler(t *testing.T) {
	t.Parallel()
	for _, h := range []slog.Handler{panickingHandler{}, onlyHandle{}} {
		callback.Logger(slog.New(h)).With("a", 1).WithGroup("b").Error("a line")
	}
	var text strings.Builder
	callback.Logger(slog.New(slog.NewTextHandler(&text, nil))).With("a", 1).WithGroup("b").Info("a line", "c", 2)
	if !strings.Contains(text.String(), `msg="a line" a=1 b.c=2`) {
		t.Error(text.String())
	}
}
