package broker

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
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// The points at which a fault may strike.
const (
	pointClaimed   = "claimed"
	pointStarted   = "handler started"
	pointBetween   = "between effects"
	pointStall     = "stall"     // between effects, before the handler fails
	pointCommitted = "committed" // and not acked
	pointEnd       = "delivery end"
	pointRetry     = "retry between effects"
)

// What is known of a message, as it was delivered and as the handler reads it.
const (
	saidDelivered = "delivered as "
	saidRead      = "read as "
)

func factsOf(d brokers.Delivery) string {
	return fmt.Sprintf("%s %q of %s at %d, key %t %q", d.Topic, d.NativeID, d.Coordinates, d.Time.UnixNano(), d.Key != nil, d.Key)
}

// event is one line of the history.
type event struct {
	At     time.Time
	PID    int
	Worker string `json:",omitempty"`
	ID     string `json:",omitempty"` // of the message, if it is about one
	What   string
}

func (e event) String() string {
	return fmt.Sprintf("%s pid %-7d %-4s %s", e.At.Format("05.000000"), e.PID, e.Worker, e.What)
}

// recorder writes the history of a worker, line by line, so that what is written
// survives its death, and announces the points.
type recorder struct {
	file   *os.File
	worker *fleet.Worker
}

func newRecorder(dir string, w *fleet.Worker) (*recorder, error) {
	name := filepath.Join(dir, fmt.Sprintf("history-%d-%d", w.Index, w.Start))
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &recorder{file, w}, err
}

// delivery is what the recorder knows about the delivery of a context.
type delivery struct {
	id    string
	retry bool // by the retry worker
}

type deliveryKey struct{}

func deliveryOf(ctx context.Context) delivery {
	d, _ := ctx.Value(deliveryKey{}).(delivery)
	return d
}

func (r *recorder) sayf(ctx context.Context, format string, args ...any) {
	line, _ := json.Marshal(event{
		At: time.Now(), PID: os.Getpid(), Worker: fmt.Sprintf("%d.%d", r.worker.Index, r.worker.Start),
		ID: deliveryOf(ctx).id, What: fmt.Sprintf(format, args...),
	})
	_, _ = r.file.Write(append(line, '\n')) // one write, so that lines do not mix
}

// at writes down that a point is reached before the parent may strike there.
func (r *recorder) at(ctx context.Context, point string) {
	r.sayf(ctx, "at %s", point)
	r.worker.Announce(point)
	r.sayf(ctx, "past %s", point)
}

var (
	_ middleware.DeliveryStartHook = (*recorder)(nil)
	_ middleware.DeliveryEndHook   = (*recorder)(nil)
	_ middleware.ClaimEndHook      = (*recorder)(nil)
	_ middleware.HandlerEndHook    = (*recorder)(nil)
	_ middleware.CommitEndHook     = (*recorder)(nil)
)

func (r *recorder) DeliveryStart(ctx context.Context, d middleware.DeliveryStart) context.Context {
	ctx = context.WithValue(ctx, deliveryKey{}, delivery{d.Message.UUID, d.Retry})
	if !d.Retry {
		r.sayf(ctx, "%s%s", saidDelivered, factsOf(d.Facts))
	}
	r.sayf(ctx, "delivery %s, suspect %t, retry %t", d.Facts.Coordinates, d.Facts.Suspect, d.Retry)
	return ctx
}

func (r *recorder) ClaimEnd(ctx context.Context, v stores.Verdict, err error) {
	r.sayf(ctx, "claim: %v, %v", v.Outcome, err)
	if v.Outcome == stores.Claimed && err == nil {
		r.at(ctx, pointClaimed)
	}
}

func (r *recorder) HandlerEnd(ctx context.Context, _ time.Duration, err error) {
	r.sayf(ctx, "handler returned %v", err)
}

func (r *recorder) CommitEnd(ctx context.Context, err error) {
	r.sayf(ctx, "commit: %v", err)
	if err == nil {
		r.at(ctx, pointCommitted)
	}
}

func (r *recorder) DeliveryEnd(ctx context.Context, d middleware.DeliveryEnd) {
	r.sayf(ctx, "delivery ended: %v, %v", d.Result, d.Err)
	r.at(ctx, pointEnd)
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
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last line of a killed process may be cut
				all = append(all, e)
			}
		}
	}
	return all
}

// tell returns what happened to a message, and to everybody meanwhile, in order.
func tell(history []event, id string) string {
	var first, last time.Time
	for _, e := range history {
		if e.ID != id {
			continue
		}
		if first.IsZero() || e.At.Before(first) {
			first = e.At
		}
		if e.At.After(last) {
			last = e.At
		}
	}
	var told []event
	for _, e := range history {
		if e.ID == id || e.Worker == "" && e.At.After(first) && e.At.Before(last.Add(time.Second)) {
			told = append(told, e)
		}
	}
	slices.SortStableFunc(told, func(a, b event) int { return a.At.Compare(b.At) })
	var b strings.Builder
	for _, e := range told[:min(len(told), 100)] {
		fmt.Fprintf(&b, "    %s\n", e)
	}
	return b.String()
}
