package fleet

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunSettlesEverything(t *testing.T) {
	r := newRig(t, "ack", numbers(500)...)
	r.Duplicates = 0.3
	r.Apart = 50
	r.Reorder = 20
	var started, acked int
	r.Observe = func(e Event) {
		switch e.Kind {
		case EventStarted:
			started++
		case EventAcked:
			acked++
		}
	}
	report := r.mustRun(t)
	if report.Published != 500 || report.Duplicates < 100 || report.Duplicates > 200 {
		t.Errorf("%d published, %d duplicates; want 500 and about 150", report.Published, report.Duplicates)
	}
	if report.Redeliveries != 0 || report.Nacks != 0 || report.Exits != 0 {
		t.Errorf("redeliveries, nacks or exits without a cause")
	}
	if started != 4 || acked != report.Acks {
		t.Errorf("observed %d starts and %d acks", started, acked)
	}
	logged := r.deliveries(t)
	if len(logged) != 500 {
		t.Errorf("%d messages were delivered, want 500", len(logged))
	}
	for uuid, lines := range logged {
		counts := make([]int, 0, len(lines))
		for _, l := range lines {
			counts = append(counts, l.count)
			if l.suspect != (l.count > 1) {
				t.Errorf("%s: delivery %d has suspect = %t", uuid, l.count, l.suspect)
			}
		}
		slices.Sort(counts) // a duplicate may overtake
		for i, count := range counts {
			if count != i+1 {
				t.Errorf("%s has deliveries %v", uuid, counts)
			}
		}
	}
}

func TestRandomKills(t *testing.T) {
	r := newRig(t, "slow", numbers(1500)...)
	r.Duplicates = 0.2
	r.Kills = RandomKills(7, 12, 1200, 4, SIGKILL, SIGSTOP, SIGTERM)
	r.await()
	report := r.mustRun(t)
	killed := 0
	for _, kind := range []Kind{SIGKILL, SIGSTOP, SIGTERM} {
		if report.Kills[kind] == 0 {
			t.Errorf("no %s", kind)
		}
		killed += report.Kills[kind]
	}
	restarts := 0
	for _, n := range report.Restarts {
		restarts += n
	}
	if killed != 12 || restarts != report.Kills[SIGKILL]+report.Kills[SIGTERM] || report.Exits != 0 {
		t.Errorf("kills %v, restarts %v, exits %d", report.Kills, report.Restarts, report.Exits)
	}
	if report.Redeliveries == 0 {
		t.Errorf("nothing was unsettled at %d kills", killed)
	}
	logged := r.deliveries(t)
	if len(logged) != 1500 {
		t.Errorf("%d messages were delivered, want 1500", len(logged))
	}
	workers := make(map[int]bool)
	for _, lines := range logged {
		workers[lines[0].worker] = true
	}
	if len(workers) != 4 {
		t.Errorf("%d workers got something, want 4", len(workers))
	}
}

func TestNackComesAgainAfterItsDelay(t *testing.T) {
	r := newRig(t, "nack first", numbers(20)...)
	nacked := make(map[string]time.Time)
	r.Observe = func(e Event) {
		switch e.Kind {
		case EventNacked:
			if !e.Failed {
				t.Errorf("%s: the nack is not marked as a failure", e.Message.UUID)
			}
			nacked[e.Message.UUID] = time.Now()
		case EventDelivered:
			if at, ok := nacked[e.Message.UUID]; ok && time.Since(at) < 50*time.Millisecond {
				t.Errorf("%s came again after %s", e.Message.UUID, time.Since(at))
			}
		}
	}
	if report := r.mustRun(t); report.Nacks != 20 {
		t.Errorf("%d nacks, want 20", report.Nacks)
	}
}

func TestWorkerThatExitsIsReplaced(t *testing.T) {
	messages := numbers(50)
	messages[25].Payload = []byte("poison")
	r := newRig(t, "exit first", messages...)
	r.Workers = 1
	report := r.mustRun(t)
	if report.Exits != 1 || report.Restarts[0] != 1 || len(report.Kills) != 0 {
		t.Errorf("exits %d, restarts %v, kills %v", report.Exits, report.Restarts, report.Kills)
	}
	lines := r.deliveries(t)["message-25"]
	if len(lines) != 2 || lines[1].count != 2 || !lines[1].suspect {
		t.Errorf("deliveries of the poison: %v", lines)
	}
}

func TestVisibility(t *testing.T) {
	messages := numbers(20)
	messages[5].Payload = []byte("slow")
	r := newRig(t, "sit first", messages...)
	r.Workers = 2
	r.Visibility = 100 * time.Millisecond
	r.await()
	report := r.mustRun(t)
	lines := r.deliveries(t)["message-5"]
	if report.Redeliveries == 0 || len(lines) < 2 || lines[0].worker == lines[1].worker { // a slow machine may need more than two
		t.Errorf("%d redeliveries, %v; want one at least, to another worker", report.Redeliveries, lines)
	}
}

func TestPrintingHandlerDoesNoHarm(t *testing.T) {
	r := newRig(t, "prints", numbers(10)...)
	command := r.Command
	r.Command = func(worker int) *exec.Cmd {
		cmd := command(worker)
		cmd.Stderr = nil
		return cmd
	}
	r.mustRun(t)
}

func TestRunGivesUp(t *testing.T) {
	for mode, want := range map[string]string{
		"broken":           "exit status 7",
		"garbage":          "standard output",
		"fails at the end": "exit status 66",
		"stays":            "did not leave",
	} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, mode, numbers(3)...)
			r.Workers = 1
			r.MaxExits = 2
			if mode == "stays" {
				r.StopTimeout = 500 * time.Millisecond
			}
			if _, err := r.run(t); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("err = %v, want one with %q", err, want)
			}
		})
	}
}

func TestCancelledRunLetsWorkersDrain(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	interrupted := errors.New("interrupted")
	r := newRig(t, "slow")
	r.Source = func(yield func(Message, error) bool) { // endless
		for i := 0; yield(Message{Topic: "numbers", UUID: fmt.Sprintf("message-%d", i)}, nil); i++ {
		}
	}
	var acked int
	r.Observe = func(e Event) {
		if e.Kind == EventAcked {
			if acked++; acked == 100 {
				cancel(interrupted)
			}
		}
	}
	report, err := Run(ctx, r.Config)
	if !errors.Is(err, interrupted) {
		t.Errorf("err = %v, want the cause of the context", err)
	}
	if limit := 4 * 4 * 8; report.Unsettled > limit {
		t.Errorf("%d unsettled, want %d at most", report.Unsettled, limit)
	}
	if report.Published-report.Acks != report.Unsettled {
		t.Errorf("%d published, %d acked, %d unsettled", report.Published, report.Acks, report.Unsettled)
	}
}

func TestSourceErrorEndsPublishing(t *testing.T) {
	torn := errors.New("line 8 is torn")
	r := newRig(t, "ack")
	r.Reorder = 5
	r.Source = func(yield func(Message, error) bool) {
		for _, m := range numbers(7) {
			if !yield(m, nil) {
				return
			}
		}
		yield(Message{}, torn)
	}
	report, err := r.run(t)
	if !errors.Is(err, torn) {
		t.Errorf("err = %v", err)
	}
	if report.Acks != 7 || report.Unsettled != 0 {
		t.Errorf("what was published before must be settled: %+v", report)
	}
}

func TestEmptySource(t *testing.T) {
	if report := newRig(t, "ack").mustRun(t); report.Deliveries != 0 {
		t.Errorf("%d deliveries of nothing", report.Deliveries)
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := Run(t.Context(), Config{Workers: -1, Duplicates: 2, Kills: []Kill{{Kind: "SIGFOO"}}})
	for _, want := range []string{"Source", "Command", "Workers", "Duplicates", "SIGFOO"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want a word about %s", err, want)
		}
	}
}

func TestProgress(t *testing.T) {
	r := newRig(t, "slow", numbers(500)...)
	r.Workers = 1
	r.InFlight = 1
	r.ProgressEvery = 50 * time.Millisecond
	var seen []int
	r.Progress = func(report Report) { seen = append(seen, report.Acks) }
	r.mustRun(t)
	if len(seen) < 5 || !slices.IsSorted(seen) {
		t.Errorf("progress: %v", seen)
	}
}
