package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// quorumQueue opens a channel in confirm mode and declares a queue of its own.
func quorumQueue(t *testing.T, url, name string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it may be gone
	channel, err := conn.Channel()
	if err == nil {
		_, err = channel.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	}
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

func publishTo(t *testing.T, channel *amqp.Channel, queue, body string) {
	t.Helper()
	confirm, err := channel.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("confirmed: %v, %v", ok, err)
	}
}

// get takes the next message, which may take a moment to be there.
func get(t *testing.T, channel *amqp.Channel, queue string) (body string) {
	t.Helper()
	testenv.Eventually(t, "a message", func() bool {
		delivery, ok, err := channel.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		body = string(delivery.Body)
		return ok
	})
	return body
}

// onOneRabbitMQ runs a test on the version whose turn it is.
func onOneRabbitMQ(t *testing.T, test func(*testing.T, rabbitmq.Version)) {
	t.Helper()
	t.Parallel()
	for _, version := range rotation.Turn(t, 1, rabbitmq.Versions()...) {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

func TestRabbitMQKeepsWhatItHasConfirmedWhenItIsKilled(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	onOneRabbitMQ(t, func(t *testing.T, version rabbitmq.Version) {
		server, queue := testenv.PrivateRabbitMQ(t, version), "queue-"+uuid.NewString()
		channel := quorumQueue(t, server.URL(), queue)
		publishTo(t, channel, queue, "one")
		pid := server.PID()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Kill(); !errors.Is(err, daemon.ErrNotRunning) {
			t.Errorf("killed twice: %v", err)
		}
		if host.Alive(pid) {
			t.Error("the node is still there")
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); !errors.Is(err, daemon.ErrRunning) {
			t.Errorf("started twice: %v", err)
		}
		channel = quorumQueue(t, server.URL(), queue)
		if body := get(t, channel, queue); body != "one" {
			t.Errorf("the message is %q", body)
		}
		publishTo(t, channel, queue, "two")
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if body := get(t, quorumQueue(t, server.URL(), queue), queue); body != "two" {
			t.Errorf("after a clean restart the message is %q", body)
		}
	})
}

func TestRabbitMQSettings(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	onOneRabbitMQ(t, func(t *testing.T, version rabbitmq.Version) {
		settings := map[string]string{"consumer_timeout": "1000"}
		server, queue := testenv.PrivateRabbitMQ(t, version, testenv.WithRabbitMQSettings(settings)), "queue-"+uuid.NewString()
		channel := quorumQueue(t, server.URL(), queue)
		closed, cancelled := channel.NotifyClose(make(chan *amqp.Error, 1)), channel.NotifyCancel(make(chan string, 1))
		if _, err := channel.Consume(queue, "", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		publishTo(t, channel, queue, "never acknowledged")
		select {
		case err := <-closed: // before 4.3
			t.Log(err)
		case <-cancelled: // since
		case <-time.After(30 * time.Second):
			t.Error("the consumer's time has no end")
		}
	})
}

func TestRabbitMQBlocksPublishersInAMemoryAlarm(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	onOneRabbitMQ(t, func(t *testing.T, version rabbitmq.Version) {
		server, queue := testenv.PrivateRabbitMQ(t, version), "queue-"+uuid.NewString()
		conn, err := amqp.Dial(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		// A blocked connection would wait for ever for an answer.
		defer func() { _ = conn.CloseDeadline(time.Now()) }()
		blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 2))
		if err := server.Control(t.Context(), "set_vm_memory_high_watermark", "absolute", "1MB"); err != nil {
			t.Fatal(err)
		}
		channel, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if err := channel.Publish("", queue, false, false, amqp.Publishing{}); err != nil {
			t.Fatal(err)
		}
		select {
		case b := <-blocked:
			if !b.Active {
				t.Error("it says that nothing is blocked")
			}
		case <-time.After(30 * time.Second):
			t.Error("nothing is blocked")
		}
	})
}

func TestRabbitMQPausedDoesNotAnswer(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivateRabbitMQ(t, rabbitmq.Newest)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	if conn, err := amqp.DialConfig(server.URL(), amqp.Config{Dial: amqp.DefaultDial(500 * time.Millisecond)}); err == nil {
		_ = conn.Close()
		t.Error("it answers")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	quorumQueue(t, server.URL(), "queue-"+uuid.NewString())
}

func TestRabbitMQIsSharedAndOfTheVersion(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	onOneRabbitMQ(t, func(t *testing.T, version rabbitmq.Version) {
		url := testenv.RabbitMQ(t, version)
		if again := testenv.RabbitMQ(t, version); again != url {
			t.Error(url, again)
		}
		conn, err := amqp.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		number, _ := conn.Properties["version"].(string)
		var major, minor int
		if _, err := fmt.Sscanf(number, "%d.%d.", &major, &minor); err != nil || version == rabbitmq.Newest && 1000*major+minor < 4003 {
			t.Errorf("%s is %q (%v)", version, number, err)
		}
	})
}

func TestRabbitMQAtAnotherAddress(t *testing.T) {
	const url = "amqp://user:password@127.0.0.1:1/vhost"
	t.Setenv(rabbitmq.URLVariable, url)
	if got := testenv.RabbitMQ(t, rabbitmq.Newest); got != url {
		t.Errorf("the broker is at %s", got)
	}
}

func TestRabbitMQFailsAtOnceWithTheLog(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	_, err := rabbitmq.Start(t.Context(), rabbitmq.Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error is %v", err)
	}
	if _, err := rabbitmq.Start(t.Context(), rabbitmq.Config{Version: "3.10"}); err == nil || !strings.Contains(err.Error(), `"packaged" "newest"`) {
		t.Errorf("the error is %v", err)
	}
}

func TestRabbitMQLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server, err := rabbitmq.Start(t.Context(), rabbitmq.Config{Version: rabbitmq.Newest})
	if err != nil {
		t.Fatal(err)
	}
	children, err := host.Children(server.PID())
	if err != nil || len(children) == 0 {
		t.Errorf("the node's children are %v (%v)", children, err)
	}
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	testenv.Eventually(t, "the node's children have ended", func() bool {
		return !slices.ContainsFunc(children, host.Alive)
	})
	if err := server.Start(context.Background()); !errors.Is(err, daemon.ErrClosed) {
		t.Errorf("started after Close: %v", err)
	}
}
