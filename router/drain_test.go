package router_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

// What runs when the service stops is finished, committed and acked.
func TestDrainFinishesHandlers(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		svc := r.service(r.config())
		begun, finish := make(chan struct{}, 2), make(chan struct{})
		svc.Handle("stock", "orders", func(msg *message.Message) error {
			begun <- struct{}{}
			<-finish
			return write(msg, msg.UUID)
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		r.publish("orders", "2")
		await(t, begun)
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "the service stops") }, 30*time.Second, time.Millisecond)
		select {
		case err := <-ended:
			require.Fail(t, "the service did not wait for its handler", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(finish)
		require.NoError(t, <-ended)
		require.Equal(t, []string{"1"}, r.effects(), "the second message was not begun")
		require.Contains(t, r.log.String(), "running=\"stock (1)\"")

		// The second comes again, the first does not.
		next := r.service(r.config())
		next.Handle("stock", "orders", func(msg *message.Message) error { return write(msg, msg.UUID+" later") })
		stop = r.run(next)
		r.reach("1", "2 later")
		require.NoError(t, stop())
	})
}

// What does not finish in time is rolled back and comes again, without having spent an
// attempt, whether the handler returns an error then or hides it.
func TestDrainRollsBackWhatIsOverdue(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.DrainTimeout = 250 * time.Millisecond
		c.Broker.InFlight = 1
		c.Inbox.Retry.MaxAttempts = 1
		c.Inbox.Retry.Placement = stores.PlacementRedelivered
		svc := r.service(c)
		begun := make(chan struct{}, 2)
		svc.Handle("honest", "orders", func(msg *message.Message) error {
			err := write(msg, "honest")
			begun <- struct{}{}
			<-msg.Context().Done()
			return errors.Join(err, errors.New("it was interrupted"))
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		await(t, begun)
		before := time.Now()
		require.NoError(t, stop())
		require.Less(t, time.Since(before), c.DrainTimeout+15*time.Second)
		require.Empty(t, r.effects())

		svc = r.service(c)
		svc.Handle("honest", "orders", func(msg *message.Message) error {
			_ = write(msg, "dishonest")
			begun <- struct{}{}
			<-msg.Context().Done()
			return nil
		})
		stop = r.run(svc)
		await(t, begun)
		require.NoError(t, stop())
		require.Empty(t, r.effects())

		svc = r.service(c)
		svc.Handle("honest", "orders", func(msg *message.Message) error { return write(msg, "third") })
		stop = r.run(svc)
		r.reach("third")
		require.NoError(t, stop())
	})
}

// A handler that heeds nothing cannot be ended: Run says so and returns.
func TestDrainTimeout(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.DrainTimeout = 200 * time.Millisecond
		svc := r.service(c)
		begun, never := make(chan struct{}), make(chan struct{})
		over := make(chan struct{})
		svc.Handle("stock", "orders", func(msg *message.Message) error {
			defer close(over)
			err := write(msg, "1")
			close(begun)
			<-never
			return err
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		await(t, begun)
		before := time.Now()
		err := stop()
		require.ErrorIs(t, err, router.ErrDrainTimeout)
		require.ErrorContains(t, err, "stock (1)")
		require.Less(t, time.Since(before), c.DrainTimeout+15*time.Second)
		close(never)
		await(t, over)
		require.Eventually(t, func() bool { return svc.Close() == nil }, 30*time.Second, time.Millisecond)
		require.Empty(t, r.effects(), "it returned when its context had ended")
	})
}

// Messages that are tried again are drained, too.
func TestDrainOfRetries(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		svc := r.service(r.config())
		begun, finish := make(chan struct{}), make(chan struct{})
		var attempts atomic.Int32
		svc.Handle("stock", "orders", func(msg *message.Message) error {
			if attempts.Add(1) == 1 {
				return errors.New("not yet")
			}
			close(begun)
			<-finish
			return write(msg, "1")
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		await(t, begun)
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "the service stops") }, 30*time.Second, time.Millisecond)
		close(finish)
		require.NoError(t, <-ended)
		require.Equal(t, []string{"1"}, r.effects())
	})
}

// childVariable makes the test program a service. Its value is the topic.
const childVariable = "MILLPOND_TEST_ROUTER_CHILD"

// child is a service that publishes one message to itself, says so when its handler has
// begun, and goes on when its standard input says so.
func child() error {
	c, err := router.LoadConfig("")
	if err != nil {
		return err
	}
	ctx := context.Background()
	svc, err := router.New(ctx, c)
	if err != nil {
		return err
	}
	topic := os.Getenv(childVariable)
	svc.Handle("stock", topic, func(msg *message.Message) error {
		err := write(msg, msg.UUID)
		fmt.Println("begun")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	})
	if err := svc.Publisher().Publish(topic, message.NewMessage("1", nil)); err != nil {
		return err
	}
	return svc.Run(ctx)
}

// process is a child.
type process struct {
	*exec.Cmd

	in       io.WriteCloser
	out, err *lines
}

func (r *rig) process(variables ...string) *process {
	r.exec(r.service(r.config()), `SELECT 1`) // the tables
	p := &process{Cmd: exec.CommandContext(r.t.Context(), os.Args[0])}
	p.Env = append(os.Environ(), childVariable+"=orders", "MILLPOND_SERVICE=shop", "MILLPOND_BROKER_URL=memory://",
		"MILLPOND_STORE_URL="+r.store, "MILLPOND_STORE_MIGRATE=true", "MILLPOND_DRAIN_TIMEOUT=20s")
	p.Env = append(p.Env, variables...)
	var err error
	p.in, err = p.StdinPipe()
	require.NoError(r.t, err)
	p.out, p.err = newLines(), newLines()
	p.Stdout, p.Stderr = p.out, p.err
	require.NoError(r.t, p.Start())
	r.t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if r.t.Failed() {
			r.t.Log(p.err.String())
		}
	})
	p.out.await(r.t, "begun")
	return p
}

func TestSignal(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		t.Run("drains", func(t *testing.T) {
			p := r.process()
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			p.err.await(t, "the service stops")
			_, err := io.WriteString(p.in, "\n")
			require.NoError(t, err)
			require.NoError(t, p.Wait())
			require.Equal(t, []string{"1"}, r.effects())
			require.Contains(t, p.err.String(), "the service has stopped")
		})
		t.Run("ends at once when it comes twice", func(t *testing.T) {
			r.t = t
			r.exec(r.service(r.config()), `DELETE FROM effect`)
			r.exec(r.service(r.config()), `DELETE FROM millpond_inbox`)
			p := r.process()
			require.NoError(t, p.Process.Signal(os.Interrupt))
			p.err.await(t, "the service stops")
			before := time.Now()
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			var exit *exec.ExitError
			require.ErrorAs(t, p.Wait(), &exit)
			require.Equal(t, "signal: terminated", exit.Error())
			require.Less(t, time.Since(before), 15*time.Second)
			require.Empty(t, r.effects())
		})
	})
}

func TestSignalOnKafka(t *testing.T) {
	r := newRig(t)
	name := "orders-" + uuid.NewString()
	p := r.process("MILLPOND_BROKER_URL=kafka://"+strings.Join(testenv.Kafka(t), ",")+"/?create_topics=true", "MILLPOND_BROKER_GROUP="+name, childVariable+"="+name)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.err.await(t, "the service stops")
	_, err := io.WriteString(p.in, "\n")
	require.NoError(t, err)
	require.NoError(t, p.Wait())
	require.Equal(t, []string{"1"}, r.effects())
}

// lines collects what a process writes.
type lines struct {
	lockedBuffer

	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	defer func() {
		select {
		case l.more <- struct{}{}:
		default:
		}
	}()
	return l.lockedBuffer.Write(p)
}

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-deadline:
			require.Fail(t, "it does not say "+text, l.String())
		}
	}
}
