package loglimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/loglimit"
)

// lockedBuffer is written to by timers, too.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestRouterSaysErrorsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		drop := errors.New("not now")
		log := loglimit.OfRouter(slog.New(slog.NewTextHandler(&out, nil)), drop).With("a", 1).WithGroup("g")
		log.Info("small talk")
		log.Error("given back", slog.Any("err", fmt.Errorf("row 7: %w", drop)))
		require.Empty(t, out.String())
		log.Error("failed", slog.Any("err", errors.New("disk full")))
		require.Contains(t, out.String(), "disk full")
		<-time.After(2 * loglimit.Within)
	})
}

func TestLinesOfTheRouterAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		log := loglimit.OfRouter(slog.New(slog.NewTextHandler(&out, nil)), errors.New("not now"))
		for i := range 100 {
			for _, handler := range []string{"stock", "mail"} {
				log.Error(fmt.Sprintf("Panic recovered in handler. Stack: goroutine %d [running]:", i),
					slog.Any("err", fmt.Errorf("order %d is gone", i)), slog.String("handler_name", handler), slog.Int("message_uuid", i))
			}
		}
		require.Equal(t, 2*loglimit.Logged, strings.Count(out.String(), "Panic recovered"))
		<-time.After(2 * loglimit.Within)
		synctest.Wait()
		require.Equal(t, 2, strings.Count(out.String(), "not_logged=95"))
		log.Error("Panic recovered in handler. Stack: ", slog.Any("err", errors.New("order 7 is gone")), slog.String("handler_name", "stock"))
		require.Equal(t, 2*loglimit.Logged+1, strings.Count(out.String(), "Panic recovered in handler. Stack"))
		<-time.After(2 * loglimit.Within)
	})
}
