package loop_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/loop"
)

// store has numbers that are due.
type store struct {
	mu    sync.Mutex
	due   []int
	done  []int
	back  []int
	asked []time.Time
	err   error
	told  int

	renewed int
	takes   time.Duration
}

func (s *store) work() loop.Work[int] {
	return loop.Work[int]{
		Ask: func(_ context.Context, limit int) ([]int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked = append(s.asked, time.Now())
			n := min(limit, len(s.due))
			batch := slices.Clone(s.due[:n])
			s.due = s.due[n:]
			return batch, s.err
		},
		Begin: func(_ context.Context, n int, _ time.Time) func(func()) {
			return func(free func()) {
				<-time.After(s.takes)
				s.mu.Lock()
				s.done = append(s.done, n)
				s.mu.Unlock()
				free()
			}
		},
		GiveBack: func(_ context.Context, batch []int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.back = append(s.back, batch...)
		},
		Renew: func(_ context.Context, batch []int) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.renewed += len(batch)
			return nil
		},
		Renewal: 300 * time.Millisecond,
		Failing: func(error) { s.told++ },
	}
}

func TestWorkThatIsDueIsDoneAndTheRestGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{due: []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, takes: time.Second}
		ctx, stop := context.WithTimeout(t.Context(), 1450*time.Millisecond)
		defer stop()
		loop.New(4, time.Minute, s.work()).Run(ctx)
		if want := 3*9 + 5 + 2*4; s.renewed != want { // every 0.3 s what is not done, and in the end what runs on
			t.Errorf("renewed %d, want %d", s.renewed, want)
		}
		if len(s.done) != 8 || len(s.done)+len(s.back)+len(s.due) != 9 {
			t.Errorf("done %v, given back %v, left %v", s.done, s.back, s.due)
		}
	})
}

func TestWakeEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		l := loop.New(1, time.Hour, s.work())
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		begun := time.Now()
		l.Wake(10 * time.Second)
		time.AfterFunc(5*time.Second, func() { l.Wake(time.Hour) }) // later ones do not put it off
		l.Run(ctx)
		if len(s.asked) != 2 || s.asked[1].Sub(begun) != 10*time.Second {
			t.Errorf("asked at %v", s.asked)
		}
	})
}

func TestQuestionsThatFailAreAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{err: errors.New("away")}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		loop.New(1, time.Second, s.work()).Run(ctx)
		if s.told != 1 || len(s.asked) < 20 || len(s.asked) > 60 {
			t.Errorf("told %d times, asked %d times", s.told, len(s.asked))
		}
	})
}
