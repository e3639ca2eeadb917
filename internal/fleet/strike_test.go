package fleet

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestKillAtPoint(t *testing.T) {
	for _, tt := range []struct {
		point string
		count int // deliveries of the message that was being handled
	}{
		{"before ack", 2},
		{"after ack", 1}, // the ack was sent before the process got to the point, or goes down with it
	} {
		t.Run(tt.point, func(t *testing.T) {
			r := newRig(t, "point", numbers(10)...)
			r.Workers = 1
			r.InFlight = 1
			r.Kills = []Kill{{Kind: SIGKILL, Point: tt.point, Hit: 3}, {Kind: SIGSTOP, Point: tt.point, Hit: 6}}
			var announced int
			r.Observe = func(e Event) {
				if e.Kind == EventAnnounced {
					announced++
				}
			}
			report := r.mustRun(t)
			if report.Kills[SIGKILL] != 1 || report.Kills[SIGSTOP] != 1 || report.Restarts[0] != 1 {
				t.Errorf("kills %v, restarts %v; want one of each", report.Kills, report.Restarts)
			}
			if announced < 6 {
				t.Errorf("%d announcements, want 6 at least", announced)
			}
			if tt.point == "after ack" { // others go on until the signal has stopped them, too
				return
			}
			if announced > 6 {
				t.Errorf("%d announcements, want 6: beyond the last fault none is needed", announced)
			}
			lines := r.deliveries(t)["message-2"]
			if want := []line{{"message-2", 1, 0, false}, {"message-2", 2, 0, true}}; !slices.Equal(lines, want) {
				t.Errorf("deliveries of the message at the point: %v, want %v", lines, want)
			}
		})
	}
}

// A process that is stopped at a point does nothing more before it is let go on.
func TestStopAtPoint(t *testing.T) {
	const stops, pause = 100, 10 * time.Millisecond
	r := newRig(t, "point", numbers(stops)...)
	r.Workers = 1
	r.InFlight = 1
	for i := range stops {
		r.Kills = append(r.Kills, Kill{Kind: SIGSTOP, Point: "before ack", Hit: i + 1, Pause: pause})
	}
	var stopped time.Time
	r.Observe = func(e Event) {
		switch e.Kind {
		case EventKilled:
			stopped = time.Now()
		case EventAcked:
			if took := time.Since(stopped); runtime.GOOS == "linux" && took < pause {
				t.Errorf("%s was acked %s after its handler was stopped for %s", e.Message.UUID, took, pause)
			}
		}
	}
	if report := r.mustRun(t); report.Kills[SIGSTOP] != stops {
		t.Errorf("%d stops, want %d", report.Kills[SIGSTOP], stops)
	}
}

func TestStoppedWorkerGoesOn(t *testing.T) {
	r := newRig(t, "ack", numbers(300)...)
	r.Workers = 1
	r.Kills = []Kill{{Kind: SIGSTOP, After: 100, Pause: 300 * time.Millisecond}}
	began := time.Now()
	report := r.mustRun(t)
	if report.Kills[SIGSTOP] != 1 || report.Restarts[0] != 0 || report.Redeliveries != 0 {
		t.Errorf("a pause is no death: %+v", report)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("took %s, less than the pause", took)
	}
}

// A worker that stands still with its pipe full must not keep the others waiting.
func TestStoppedWorkerDoesNotBlock(t *testing.T) {
	messages := numbers(300)
	for i := range messages {
		messages[i].Payload = make([]byte, 100<<10) // more than a pipe holds
	}
	r := newRig(t, "ack", messages...)
	const pause = 3 * time.Second
	r.Workers = 2
	r.Kills = []Kill{{Kind: SIGSTOP, After: 20, Pause: pause}}
	var during int
	var stoppedAt time.Time
	r.Observe = func(e Event) {
		switch {
		case e.Kind == EventKilled:
			stoppedAt = time.Now()
		case e.Kind == EventAcked && e.Worker == 1 && !stoppedAt.IsZero() && time.Since(stoppedAt) < pause:
			during++
		}
	}
	r.await()
	r.mustRun(t)
	if during < 20 {
		t.Errorf("the other worker settled %d messages meanwhile", during)
	}
}
