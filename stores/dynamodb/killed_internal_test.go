package dynamodb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/storetest"
)

// The environment of a process that handles messages for TestProcessesThatAreKilled.
const (
	workerEndpoint = "MILLPOND_TEST_DYNAMODB_WORKER_ENDPOINT"
	workerPrefix   = "MILLPOND_TEST_DYNAMODB_WORKER_PREFIX"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEndpoint) != "" {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work handles the messages whose ids come line by line, and says which it has acked.
func work() error {
	ctx := context.Background()
	store, err := New(ctx, Config{TablePrefix: os.Getenv(workerPrefix), AWS: &aws.Config{
		Region: "eu-central-1", BaseEndpoint: aws.String(os.Getenv(workerEndpoint)), Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	}})
	if err != nil {
		return err
	}
	pause := func() { <-time.After(rand.N(30 * time.Millisecond)) }
	write := func(ctx context.Context, _ *Tx, msg *message.Message, _ struct{}) error {
		pause()
		return writeEffect(ctx, storetest.Effect{Key: msg.UUID, Label: "first", Run: os.Getpid()})
	}
	say := func(msg *message.Message) error {
		return outbox.Publisher("").Publish("t", message.NewMessageWithContext(msg.Context(), msg.UUID, nil))
	}
	handlers := map[string]message.NoPublishHandlerFunc{
		"t": Handler(func(ctx context.Context, tx *Tx, msg *message.Message) error {
			return errors.Join(say(msg), write(ctx, tx, msg, struct{}{}))
		}),
		"l": Lease(func(_ context.Context, msg *message.Message) (struct{}, error) { pause(); return struct{}{}, say(msg) }, write),
	}
	wrapped := make(map[string]message.HandlerFunc)
	for mode, handler := range handlers {
		c := middleware.InboxConfig{
			Service: "killed", Handler: mode, HandlerTimeout: 5 * time.Second, CommitTimeout: 2 * time.Second, CacheSize: -1, Logger: slog.New(slog.DiscardHandler),
			Outputs: &middleware.Outputs{},
			Hold:    middleware.HoldConfig{Limit: 20 * time.Second, MinPause: time.Millisecond, MaxPause: 50 * time.Millisecond},
			Retry:   middleware.RetryPolicy{Placement: stores.PlacementRedelivered, MaxAttempts: 100, MaxUncounted: 1000, Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: 5 * time.Millisecond}},
		}
		if mode == "l" {
			c.LeaseByHandler = map[string]middleware.LeaseConfig{mode: {TTL: time.Second}}
		}
		in, err := middleware.NewInbox(store, c)
		if err != nil {
			return err
		}
		wrapped[mode] = in.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
	}
	var out sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		id, suspect, _ := strings.Cut(lines.Text(), " ")
		go func() {
			msg := message.NewMessage(id, []byte(id))
			msg.SetContext(brokers.WithDelivery(ctx, msg, brokers.Delivery{Topic: "killed", Suspect: suspect != ""}))
			_, err := wrapped[id[:1]](msg)
			out.Lock()
			defer out.Unlock()
			if err != nil {
				fmt.Fprintln(os.Stderr, id, err)
				fmt.Println("nack", id)
				return
			}
			fmt.Println("ack", id)
		}()
	}
	return nil
}

// killable is a process that works.
type killable struct {
	*exec.Cmd
	in   io.WriteCloser
	errs *strings.Builder
}

// settled is a delivery that a process has acked or nacked.
type settled struct {
	by    *killable
	id    string
	acked bool
}

func startWorker(t *testing.T, b *bench, all chan<- settled) *killable {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]) // this test itself
	cmd.Env = append(os.Environ(), workerEndpoint+"="+b.mirror.endpoint, workerPrefix+"="+strings.TrimSuffix(b.table, "inbox"))
	k := &killable{Cmd: cmd, errs: &strings.Builder{}}
	cmd.Stderr = k.errs
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	k.in = in
	require.NoError(t, cmd.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			how, id, _ := strings.Cut(lines.Text(), " ")
			all <- settled{k, id, how == "ack"}
		}
	}()
	return k
}

// Processes are killed, and stopped for a moment, in the middle of what they do. Messages that are
// not acked are delivered again and again, also while others have them, but not more often at a time
// than there are processes. New ones come until the last process is killed. Each message has its
// effect once, in a transaction or under a lease.
func TestProcessesThatAreKilled(t *testing.T) {
	const (
		atOnce    = 60
		processes = 3
		kills     = 12
	)
	b := newBench(t)
	done := make(chan settled, 1000)
	open, flying := make(map[string]bool), make(map[string][]*killable) // open: whether it was delivered before
	var all []*killable
	for range processes {
		all = append(all, startWorker(t, b, done))
	}
	defer func() {
		for _, k := range all {
			_ = k.Process.Kill()
			_ = k.Wait()
		}
	}()
	messages, killed := 0, 0
	deliver := func() {
		for ; len(open) < atOnce && (killed < kills || messages < atOnce); messages++ {
			open[fmt.Sprint([]string{"t", "l"}[messages%2], messages)] = false
		}
		for id, again := range open {
			if len(flying[id]) == processes {
				continue
			}
			suspect := ""
			if again {
				suspect = " again"
			}
			to := all[rand.IntN(len(all))]
			_, err := fmt.Fprintf(to.in, "%s%s\n", id, suspect)
			require.NoError(t, err)
			flying[id], open[id] = append(flying[id], to), true
		}
	}
	deliver()
	deadline := time.Now().Add(3 * time.Minute) // suspects run one at a time
	for len(open) > 0 || killed < kills {
		select {
		case s := <-done:
			if s.acked {
				delete(open, s.id)
			}
			if i := slices.Index(flying[s.id], s.by); i >= 0 {
				flying[s.id] = slices.Delete(flying[s.id], i, i+1)
			}
			continue
		case <-time.After(rand.N(150 * time.Millisecond)):
		}
		if time.Now().After(deadline) {
			_ = all[0].Process.Kill()
			_ = all[0].Wait() // it writes no more
			t.Fatalf("%d messages are not acked: %v\n%s", len(open), open, all[0].errs)
		}
		if killed < kills {
			i := rand.IntN(len(all))
			if killed%3 == 2 {
				_ = all[i].Process.Signal(syscall.SIGSTOP)
				stopped := all[i]
				time.AfterFunc(rand.N(4*time.Second), func() { _ = stopped.Process.Signal(syscall.SIGCONT) })
			} else {
				_ = all[i].Process.Kill()
				_ = all[i].Wait()
				for id, by := range flying {
					flying[id] = slices.DeleteFunc(by, func(k *killable) bool { return k == all[i] })
				}
				all[i] = startWorker(t, b, done)
			}
			killed++
		}
		deliver()
	}
	t.Logf("%d messages", messages)
	counts := make(map[string]int)
	_, err := b.mirror.scan(t.Context(), b.mirror.effects, func(i item) error {
		counts[text(i["key"])]++
		return nil
	})
	require.NoError(t, err)
	require.Len(t, counts, messages)
	for id, n := range counts {
		require.Equal(t, 1, n, id)
	}
	said := b.pending(t)
	slices.Sort(said)
	require.Equal(t, slices.Sorted(maps.Keys(counts)), said, "each has said what it says once")
}
