package middleware

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// The one that is about to ask must not sleep on when another delivery, whose handler
// was running, has been answered.
func TestIntakeThatResumesWakesTheOneThatIsAboutToAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIntake(slog.New(slog.DiscardHandler), nil, HoldConfig{MinPause: time.Hour, MaxPause: time.Hour})
		i.pause(errors.New("down"))
		start := time.Now()
		go func() {
			<-time.After(time.Second)
			i.resume()
		}()
		if asking, ok := i.wait(t.Context()); asking || !ok || time.Since(start) != time.Second {
			t.Errorf("asking %v, ok %v after %s", asking, ok, time.Since(start))
		}
		if len(i.probe) != 0 {
			t.Error("its turn has not ended")
		}
	})
}
