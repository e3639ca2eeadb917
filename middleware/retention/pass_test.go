package retention_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
)

var stock = stores.Consumer{Service: "inventory", Handler: "stock"}

const day = 24 * time.Hour

// scripted is a store with one consumer, which notes what it is asked.
type scripted struct {
	ahead    time.Duration // of the database's clock
	mark     stores.Watermark
	times    []time.Time // of completed rows
	open     int         // how often Overtaken says no
	calls    []string
	at       []time.Time
	announce time.Time
}

func (s *scripted) call(name string) { s.calls, s.at = append(s.calls, name), append(s.at, time.Now()) }

func (s *scripted) now() time.Time { return time.Now().Add(s.ahead) }

func (s *scripted) Watermarks(context.Context) (stores.Watermarks, error) {
	s.mark.Consumer = stock
	return stores.Watermarks{Now: s.now(), Consumers: []stores.Watermark{s.mark, {Consumer: stores.Consumer{Service: "another", Handler: "stock"}}}}, nil
}

func (s *scripted) found(q stores.PurgeQuery) (r stores.PurgeRange, left []time.Time) {
	f := stores.PurgeFound{Consumer: stock}
	for _, at := range s.times {
		f.Rows++
		if at.After(f.Newest) {
			f.Newest = at
		}
		if !at.After(q.Recent) && at.After(f.Before) {
			f.Before = at
		}
		if at.After(q.Recent) && (f.After.IsZero() || at.Before(f.After)) {
			f.After = at
		}
		if len(q.Limits) == 0 || at.After(q.Limits[0].Before) {
			left = append(left, at)
			if f.Left.IsZero() || at.Before(f.Left) {
				f.Left = at
			}
			continue
		}
		f.Purgeable++
		if at.After(f.Through) {
			f.Through = at
		}
	}
	r.Found = []stores.PurgeFound{f}
	return r, left
}

func (s *scripted) Survey(_ context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	if q.Kind != stores.PurgeCompleted {
		return stores.PurgeRange{}, nil
	}
	s.call("survey")
	r, _ := s.found(q)
	return r, nil
}

func (s *scripted) Announce(_ context.Context, _ stores.Consumer, through time.Time) error {
	s.call("announce")
	s.announce = through
	s.mark.PurgedThrough, s.mark.AnnouncedAt = through.Add(stores.ClockMargin), s.now()
	return nil
}

func (s *scripted) Overtaken(context.Context, string) (string, bool, error) {
	s.call("overtaken")
	s.open--
	return "mark", s.open < 0, nil
}

func (s *scripted) Purge(_ context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	s.call("purge")
	r, left := s.found(q)
	if q.Archive != nil {
		if err := q.Archive(make([]stores.PurgedRow, r.Found[0].Purgeable)); err != nil {
			return stores.PurgeRange{}, errors.Join(stores.ErrArchive, err)
		}
	}
	r.Deleted, s.times = len(s.times)-len(left), left
	return r, nil
}

func (*scripted) NoteLate(context.Context, stores.Consumer, time.Time) error        { return nil }
func (*scripted) AcceptStale(context.Context, stores.Consumer, time.Duration) error { return nil }

func (*scripted) Lease(_ context.Context, r stores.LeaseRequest) (stores.Leased, error) {
	return stores.Leased{Units: r.Units, Live: 1}, nil
}
func (*scripted) Unlease(context.Context, string, string, []int64) error { return nil }

// busy has completed a message in each hour of the last days.
func busy(days int) (times []time.Time) {
	for i := range days * 24 {
		times = append(times, time.Now().Add(-time.Duration(i)*time.Hour-time.Minute))
	}
	return times
}

func sweeper(t *testing.T, s *scripted, change func(*retention.Config)) *retention.Sweeper {
	t.Helper()
	c := retention.Config{Service: "inventory", Windows: retention.Windows{Window: 7 * day}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	sweeps, err := retention.New(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return sweeps
}

// The announcement is a commit of its own, and nothing is deleted before everything is over
// that may not have seen it.
func TestPurgeLooksAnnouncesWaitsAndDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{times: busy(10), open: 3}
		oldest := s.now().Add(-7 * day)
		result, err := sweeper(t, s, nil).Pass(t.Context(), retention.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"survey", "announce", "overtaken", "overtaken", "overtaken", "overtaken", "purge"}
		if !slices.Equal(s.calls, want) {
			t.Errorf("%v, want %v", s.calls, want)
		}
		if waited := s.at[2].Sub(s.at[1]); waited < time.Second {
			t.Errorf("it was asked %s after the announcement who has not seen it", waited)
		}
		if n := result.Deleted[stores.PurgeCompleted]; n != 3*24 || s.announce.After(oldest) || len(s.times) != 7*24 {
			t.Errorf("%d rows are purged, announced through %s of %s", n, s.announce, oldest)
		}
	})
}

func TestWhatKeepsRows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script  func(*scripted)
		options retention.Options
		deleted int // of 10 days with 24 rows, of which 7 are kept
		kept    string
	}{
		"nothing":                        {deleted: 72},
		"a dry run":                      {options: retention.Options{DryRun: true}},
		"it stands still":                {script: func(s *scripted) { s.times = s.times[25:] }, kept: "for a day: if it is retired"},
		"it stood still until yesterday": {script: func(s *scripted) { s.times = append(s.times[:1:1], s.times[50:]...) }, kept: "until recently"},
		"it stood still for more than a day until lately": {script: func(s *scripted) { s.times = append(s.times[:2:2], s.times[31:]...) }, kept: "until recently"},
		"the clock has jumped by a month, and the process is another one": {
			script: func(s *scripted) {
				for i := range s.times[26:] {
					s.times[26+i] = s.times[26+i].Add(-30 * day)
				}
				s.mark.PurgedThrough, s.mark.AnnouncedAt = s.now().Add(-38*day), s.now().Add(-30*day-26*time.Hour)
			},
			kept: "the clock jumped",
		},
		"it works on weekdays alone, and the weekend is as old as the window": {
			script: func(s *scripted) { s.times = append(s.times[:7*24-30:7*24-30], s.times[7*24+18:]...) }, kept: "the clock jumped",
		},
		"it is retired, by command": {script: func(s *scripted) { s.times = s.times[25:] }, options: retention.Options{Silent: true}, deleted: 72},
		"the broker lags": {
			script:  func(s *scripted) { s.mark.LateTime, s.mark.LateAt = s.now().Add(-9*day), s.now().Add(-time.Hour) },
			deleted: 24, kept: "of that age",
		},
		"the broker lagged the other day": {
			script:  func(s *scripted) { s.mark.LateTime, s.mark.LateAt = s.now().Add(-9*day), s.now().Add(-26*time.Hour) },
			deleted: 72,
		},
		"the last purge was an hour ago, and far behind": {
			script: func(s *scripted) {
				s.mark.PurgedThrough, s.mark.AnnouncedAt = s.now().Add(-10*day+stores.ClockMargin), s.now().Add(-time.Hour)
			},
			deleted: 2, kept: "twice the time",
		},
		"the database's clock has jumped, and the announcement is from the future": {
			script: func(s *scripted) {
				s.mark.PurgedThrough, s.mark.AnnouncedAt = s.now().Add(-10*day+stores.ClockMargin), s.now().Add(365*day)
			},
			deleted: 0, kept: "twice the time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{times: busy(10)}
				if test.script != nil {
					test.script(s)
				}
				result, err := sweeper(t, s, nil).Pass(t.Context(), test.options)
				if err != nil {
					t.Fatal(err)
				}
				if n := result.Deleted[stores.PurgeCompleted]; n != test.deleted || !strings.Contains(result.Found[0].Kept, test.kept) || test.kept == "" && result.Found[0].Kept != "" {
					t.Errorf("%d rows are purged, want %d: %+v", n, test.deleted, result.Found)
				}
				if announced := slices.Contains(s.calls, "announce"); announced != (test.deleted > 0) {
					t.Errorf("%v", s.calls)
				}
			})
		})
	}
}

// However often a purge runs, it is not faster than twice the time.
func TestPassesDoNotRunAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{times: busy(10)}
		s.mark.PurgedThrough, s.mark.AnnouncedAt = s.now().Add(-10*day+stores.ClockMargin), s.now()
		sweeps, begun := sweeper(t, s, nil), s.now()
		for range 12 {
			<-time.After(10 * time.Minute)
			if _, err := sweeps.Pass(t.Context(), retention.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		passed := s.now().Sub(begun)
		if moved := s.mark.PurgedThrough.Sub(begun.Add(-10*day + stores.ClockMargin)); moved > 2*passed || moved < passed {
			t.Errorf("in %s the purge has moved by %s", passed, moved)
		}
	})
}

// Rows in quarantine whose consumer nobody knows belong to no service.
func TestQuarantinedOfNoConsumerArePurged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{times: busy(10)}
		result, err := sweeper(t, s, func(c *retention.Config) { c.Quarantined = 90 * day }).Pass(t.Context(), retention.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(result.Found, func(r retention.Report) bool {
			return r.Kind == stores.PurgeQuarantined && r.Consumer == stores.Consumer{}
		}) {
			t.Errorf("%+v", result.Found)
		}
	})
}

// Whichever clock has jumped, this program's or the database's: nothing is purged.
func TestClocksThatDifferPurgeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{365 * day, -365 * day, 61 * time.Minute, -61 * time.Minute} {
			s := &scripted{times: busy(10), ahead: ahead}
			if _, err := sweeper(t, s, nil).Pass(t.Context(), retention.Options{Silent: true}); !errors.Is(err, retention.ErrClocks) || len(s.calls) > 0 {
				t.Errorf("%s: %v, %v", ahead, err, s.calls)
			}
		}
		s := &scripted{times: busy(10), ahead: 59 * time.Minute} // by the database's
		if result, err := sweeper(t, s, nil).Pass(t.Context(), retention.Options{}); err != nil || result.Deleted[stores.PurgeCompleted] != 73 {
			t.Errorf("%v, %v", result, err)
		}
	})
}

func TestTransactionsThatDoNotEndKeepRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{times: busy(10), open: 1 << 30}
		if _, err := sweeper(t, s, nil).Pass(t.Context(), retention.Options{}); !errors.Is(err, retention.ErrInFlight) || slices.Contains(s.calls, "purge") {
			t.Errorf("%v, %v", err, s.calls)
		}
	})
}

func TestArchiveThatFailsStopsThePurge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("the disk is full")
		for want, archive := range map[error]func(context.Context, []stores.PurgedRow) error{
			full:              func(context.Context, []stores.PurgedRow) error { return full },
			stores.ErrArchive: func(context.Context, []stores.PurgedRow) error { panic("a bug") },
		} {
			s := &scripted{times: busy(10)}
			_, err := sweeper(t, s, func(c *retention.Config) { c.Archive = archive }).Pass(t.Context(), retention.Options{})
			if !errors.Is(err, want) || len(s.times) != 240 {
				t.Errorf("%v, %d rows are left", err, len(s.times))
			}
		}
	})
}

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	_, err := retention.New(nil, retention.Config{
		Windows: retention.Windows{Window: day, Failed: time.Hour, Audited: -1}, ByHandler: map[string]time.Duration{"a": -1}, Every: -1, Rate: -1,
	})
	for _, want := range []string{"the store is nil", "Service", "Failed", "Audited", `ByHandler["a"]`, "Every", "Rate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A window in which new messages would be stale is refused with both numbers, unless nobody
// serves the consumers any more.
func TestShortWindowsAreRefused(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Second, stores.ClockMargin, 6 * time.Hour, retention.MinWindow - 1} {
		for _, c := range []retention.Config{
			{Windows: retention.Windows{Window: window}},
			{ByHandler: map[string]time.Duration{"stock": window}},
			{Windows: retention.Windows{Failed: window}},
			{Windows: retention.Windows{Discarded: window}},
		} {
			c.Service = "inventory"
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), window.String()) || !strings.Contains(err.Error(), "6h5m0s") {
				t.Errorf("%s: %v", window, err)
			}
			c.Retired = true
			if err := c.Validate(); err != nil {
				t.Errorf("%s of a retired consumer: %v", window, err)
			}
		}
	}
	c := retention.Config{Service: "inventory", Windows: retention.Windows{Window: retention.MinWindow, Audited: time.Second}}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
