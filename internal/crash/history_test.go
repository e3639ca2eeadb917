package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// event is one line of the history: what happened to a message, or to a process.
type event struct {
	At       time.Time
	PID      int    // of the worker
	Worker   string `json:",omitempty"`
	Consumer string `json:",omitempty"`
	ID       string `json:",omitempty"` // as in order; both may be empty for what is not about a message
	Payload  string `json:",omitempty"`
	What     string
	Detail   string `json:",omitempty"`
	Lease    int64  `json:",omitempty"` // the token that the delivery had
}

func (e event) String() string {
	return fmt.Sprintf("%s pid %-7d %-4s %-5s %s %s", e.At.Format("05.000000"), e.PID, e.Worker, e.Consumer, e.What, e.Detail)
}

func (e event) unknownCommit() bool {
	return e.What == saidCommit && strings.Contains(e.Detail, stores.ErrCommitUnknown.Error())
}

// What workers write down; the parent writes fleet's kinds of events.
const (
	saidDelivered = "delivery"
	saidAt        = "at "   // and a point
	saidPast      = "past " // and a point
	saidClaim     = "claim:"
	saidRun       = "run"
	saidCounting  = "attempt is counted" // before it begins
	saidFacts     = "facts:"             // of the delivery, as the handler reads them
	saidSession   = "session:"           // that another handler has changed
	saidEffect    = "effect written:"
	saidEchoed    = "echo published" // in a handler, with its context
	saidEchoAcked = "echo acked"
	saidReturned  = "handler returned"
	saidCommit    = "commit:"
	saidHold      = "hold:"
	saidEnd       = "delivery ended:"
	saidRecorded  = "failed attempt recorded:" // with what is counted now
	saidCopied    = "dead letter copied:"
	saidDecided   = "operator:"
	saidServer    = "parent: the server "
)

// story is what the recorder knows about the delivery of a context.
type story struct {
	consumer, id, payload string
	retry                 bool // by the retry worker
	lease                 *atomic.Int64
}

// token is that of the lease under which the delivery runs.
func (s story) token() int64 {
	if s.lease == nil {
		return 0
	}
	return s.lease.Load()
}

type storyKey struct{}

func storyOf(ctx context.Context) story {
	s, _ := ctx.Value(storyKey{}).(story)
	return s
}

// recorder writes the history of a worker, line by line, so that what is written
// survives its death. Its hooks write down each step, and announce it as a point.
type recorder struct {
	file   *os.File
	worker *fleet.Worker
}

func newRecorder(dir string, w *fleet.Worker) (*recorder, error) {
	name := filepath.Join(dir, fmt.Sprintf("history-%d-%d-%d", w.Index, w.Start, os.Getpid()))
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &recorder{file, w}, err
}

func (r *recorder) say(ctx context.Context, what string, detail any) {
	s := storyOf(ctx)
	text := ""
	if detail != nil {
		text = fmt.Sprint(detail)
	}
	line, _ := json.Marshal(event{
		At: time.Now(), PID: os.Getpid(), Worker: fmt.Sprintf("%d.%d", r.worker.Index, r.worker.Start),
		Consumer: s.consumer, ID: s.id, Payload: s.payload, What: what, Detail: text, Lease: s.token(),
	})
	_, _ = r.file.Write(append(line, '\n')) // one write, so that lines do not mix
}

// at writes down that a point is reached before the parent may strike there.
func (r *recorder) at(ctx context.Context, point string) {
	r.say(ctx, saidAt+point, nil)
	r.worker.Announce(point)
	r.say(ctx, saidPast+point, nil)
}

// during writes down that a point is reached, where the parent may strike while the
// process goes on.
func (r *recorder) during(ctx context.Context, point string) {
	r.say(ctx, saidAt+point, nil)
	go r.worker.Announce(point)
}

// The points of a delivery, in order. The hold is beside it.
const (
	pointClaimStart  = "claim start"
	pointClaimEnd    = "claim end"
	pointBetween     = "between effects"
	pointHandlerEnd  = "handler end"
	pointCommitStart = "commit start"
	pointCommitEnd   = "commit end"
	pointDeliveryEnd = "delivery end" // committed, and not acked
	pointHold        = "hold"
)

var points = []string{
	pointClaimStart, pointClaimEnd, pointBetween, pointHandlerEnd,
	pointCommitStart, pointCommitEnd, pointDeliveryEnd, pointHold,
}

// The points of what becomes of a failure: its record, its retry and its redrive.
const (
	pointRecordStart   = "record start"
	pointRecord        = "record" // and goes on meanwhile
	pointRecordEnd     = "record end"
	pointCounted       = "attempt counted" // before it begins
	pointDue           = "due"             // reserved
	pointTakeoverStart = "takeover start"
	pointTakeoverEnd   = "takeover end"
	pointRetry         = "retry between effects"
	pointRelease       = "release"
	pointRedriveStart  = "redrive start"
	pointRedrive       = "redrive" // and goes on meanwhile
	pointRedriveEnd    = "redrive end"
)

var failurePoints = []string{
	pointRecordStart, pointRecord, pointRecordEnd, pointCounted,
	pointDue, pointTakeoverStart, pointTakeoverEnd, pointRetry, pointRelease,
	pointRedriveStart, pointRedrive, pointRedriveEnd,
}

var (
	_ middleware.DeliveryStartHook = (*recorder)(nil)
	_ middleware.DeliveryEndHook   = (*recorder)(nil)
	_ middleware.ClaimStartHook    = (*recorder)(nil)
	_ middleware.ClaimEndHook      = (*recorder)(nil)
	_ middleware.HandlerEndHook    = (*recorder)(nil)
	_ middleware.CommitStartHook   = (*recorder)(nil)
	_ middleware.CommitEndHook     = (*recorder)(nil)
	_ middleware.HoldHook          = (*recorder)(nil)
)

func (r *recorder) DeliveryStart(ctx context.Context, d middleware.DeliveryStart) context.Context {
	ctx = context.WithValue(ctx, storyKey{}, story{d.Consumer.Handler, d.Message.UUID, string(d.Message.Payload), d.Retry, new(atomic.Int64)})
	if d.Retry {
		r.say(ctx, saidDelivered, "by the retry worker")
	} else {
		r.say(ctx, saidDelivered, d.Facts.Count)
	}
	return ctx
}

func (r *recorder) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	r.at(ctx, pointClaimStart)
	return ctx
}

func (r *recorder) ClaimEnd(ctx context.Context, v stores.Verdict, err error) {
	if err != nil {
		r.say(ctx, saidClaim, err)
	} else {
		r.say(ctx, saidClaim, v.Outcome)
	}
	if v.Outcome == stores.Claimed {
		r.at(ctx, pointClaimEnd)
	}
}

func (r *recorder) HandlerEnd(ctx context.Context, _ time.Duration, err error) {
	r.say(ctx, saidReturned, err)
	r.at(ctx, pointHandlerEnd)
}

func (r *recorder) CommitStart(ctx context.Context) context.Context {
	r.at(ctx, pointCommitStart)
	return ctx
}

func (r *recorder) CommitEnd(ctx context.Context, err error) {
	r.say(ctx, saidCommit, err)
	if err == nil {
		r.at(ctx, pointCommitEnd)
	}
}

func (r *recorder) DeliveryEnd(ctx context.Context, d middleware.DeliveryEnd) {
	detail := string(d.Result)
	if d.Err != nil {
		detail += ": " + d.Err.Error()
	}
	r.say(ctx, saidEnd, detail)
	if d.Class != "" {
		r.say(ctx, saidRecorded, fmt.Sprintf("%s %d", d.Class, d.Attempts))
	}
	r.at(ctx, pointDeliveryEnd)
}

func (r *recorder) Hold(ctx context.Context, reason error, pause time.Duration) {
	r.say(ctx, saidHold, fmt.Sprintf("%s for %s", reason, pause))
	r.at(ctx, pointHold)
}

// readHistory reads what all workers have written.
func readHistory(t *testing.T, dir string) []event {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "history-*"))
	if err != nil {
		t.Fatal(err)
	}
	var all []event
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last line of a killed process may be cut
				all = append(all, e)
			}
		}
	}
	return all
}

func inOrderOfTime(history []event) []event {
	return slices.SortedStableFunc(slices.Values(history), func(x, y event) int { return x.At.Compare(y.At) })
}

// about returns what happened to a message, and to the processes that had it, in order.
func about(history []event, k key) []event {
	mine := func(e event) bool { return e.Consumer == k.consumer && e.ID == k.id }
	concerned := make(map[int]bool)
	var first, last time.Time
	for _, e := range history {
		if mine(e) {
			concerned[e.PID] = true
			if first.IsZero() || e.At.Before(first) {
				first = e.At
			}
			if e.At.After(last) {
				last = e.At
			}
		}
	}
	var out []event
	for _, e := range history {
		beside := e.Consumer == "" && strings.HasPrefix(e.What, "parent: ") && (e.PID == 0 || concerned[e.PID]) && !e.At.Before(first) && !e.At.After(last.Add(time.Second))
		if mine(e) || beside {
			out = append(out, e)
		}
	}
	return inOrderOfTime(out)
}

func tell(events []event) string {
	var b strings.Builder
	const shown = 3000
	for i, e := range events {
		if i == shown {
			fmt.Fprintf(&b, "    and %d more\n", len(events)-shown)
			break
		}
		fmt.Fprintf(&b, "    %s\n", e)
	}
	return b.String()
}
