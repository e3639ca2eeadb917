package gate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The one that is about to ask must not sleep on when another delivery, whose handler
// was running, has been answered.
func TestIntakeThatResumesWakesTheOneThatIsAboutToAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIntake(quiet(Config{MinPause: time.Hour, MaxPause: time.Hour}))
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

// Each answer may be all that the store has to give: the next pause is no shorter for it.
func TestPausesGrowThroughShortResumptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIntake(quiet(Config{MinPause: 10 * time.Millisecond, MaxPause: 2 * time.Second}))
		pause := func() time.Duration {
			start := time.Now()
			i.pause(errors.New("read-only"))
			if asking, ok := i.wait(t.Context()); !asking || !ok {
				t.Fatal("it is not asked")
			}
			i.resume()
			i.done()
			return time.Since(start)
		}
		for range 10 {
			pause()
		}
		if took := pause(); took < time.Second {
			t.Errorf("the 11th pause was over after %s", took)
		}
		<-time.After(5 * time.Second)
		if took := pause(); took > 10*time.Millisecond {
			t.Errorf("after 5 s without any, a pause took %s", took)
		}
	})
}

func quiet(c Config) Config {
	c.Paused, c.Resumed = func(error) {}, func(time.Duration) {}
	return c
}
