package router_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores/postgres"
)

// get asks a service.
func get(t require.TestingT, svc *router.Service, path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+svc.HTTPAddr().String()+path, nil)
	require.NoError(t, err)
	request.Close = true // or the client keeps a goroutine
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// readyWithin waits until /readyz has this status and says these lines.
func readyWithin(t *testing.T, svc *router.Service, status int, lines ...string) (body string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var got int
		got, body = get(c, svc, "/readyz")
		assert.Equal(c, status, got, body)
		for _, line := range lines {
			assert.Contains(c, body, line)
		}
	}, 60*time.Second, 50*time.Millisecond)
	return body
}

func TestAnswers(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	svc := r.service(c)
	require.Nil(t, svc.HTTPAddr(), "it does not listen yet")
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	status, body := get(t, svc, "/livez")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)
	readyWithin(t, svc, http.StatusOK, "handlers: ok\nstore: ok\n")
	for _, path := range []string{"/", "/metrics", "/debug/pprof/"} { // without telemetry there are no metrics
		status, _ = get(t, svc, path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	_, body = get(t, svc, "/metrics")
	require.Contains(t, body, "telemetry.on: true")
	require.Contains(t, body, `import _ "github.com/millpond-go/millpond/router/telemetry"`)
	address := svc.HTTPAddr().String()
	require.NoError(t, stop())
	_, err := net.DialTimeout("tcp", address, time.Second)
	require.Error(t, err, "a service that has stopped does not listen")
}

// A service is not ready while what it needs is away, and says what. It is alive all the
// time, and ready again when that is back.
func TestReadiness(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateKafka(t)
	proxy, err := pgproxy.Start(testenv.Postgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	u, err := url.Parse(proxy.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), canary) // which the server does not ask for
	r := newRig(t)
	r.store = withParameter(t, u.String(), "pool_max_conns", "40")
	c, err := read(r.file(router.NewURL("kafka://" + server.Address() + "/?create_topics=true")))
	require.NoError(t, err)
	c.HTTP.Listen = "127.0.0.1:0"
	c.Program = router.Program{Logger: r.config().Program.Logger, NoSignals: true}
	svc := r.service(c)
	require.NoError(t, svc.Publisher().Publish("orders", message.NewMessage("1", nil)))
	svc.Handle("stock", "orders", func(msg *message.Message) error { return write(msg, msg.UUID) })
	stop := r.run(svc)
	readyWithin(t, svc, http.StatusOK, "handlers: ok\n", "store: ok\n", "broker: ok\n")

	proxy.Freeze() // nobody answers, which is worse than an error
	body := readyWithin(t, svc, http.StatusServiceUnavailable, "handlers: ok\n", "broker: ok\n")
	require.NotContains(t, body, "store: ok")
	require.NotContains(t, body, canary)
	status, _ := get(t, svc, "/livez")
	require.Equal(t, http.StatusOK, status)
	proxy.Thaw()
	readyWithin(t, svc, http.StatusOK)

	require.NoError(t, server.Kill())
	readyWithin(t, svc, http.StatusServiceUnavailable, "handlers: ok\n", "store: ok\n", "broker: kafka: ", "messages: stock gets none: ")
	require.NoError(t, server.Start(t.Context()))
	readyWithin(t, svc, http.StatusOK)

	require.NoError(t, stop())
	require.NotContains(t, r.log.String(), canary)
}

// A store that answers questions and refuses every claim has no handler run.
func TestNotReadyWhileTheIntakeIsPaused(t *testing.T) {
	r := newRig(t)
	r.store = withParameter(t, testenv.Postgres(t).NewDatabase(t), "pool_max_conns", "40")
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	svc := r.service(c)
	svc.Handle("stock", "orders", func(msg *message.Message) error { return write(msg, msg.UUID) })
	stop := r.run(svc)
	readyWithin(t, svc, http.StatusOK)
	readOnly := func(value string) {
		admin, err := pgx.Connect(t.Context(), strings.SplitN(r.store, "?", 2)[0])
		require.NoError(t, err)
		defer admin.Close(t.Context())
		_, err = admin.Exec(t.Context(), "SET default_transaction_read_only = off")
		require.NoError(t, err)
		_, err = admin.Exec(t.Context(), "ALTER DATABASE "+admin.Config().Database+" SET default_transaction_read_only = "+value)
		require.NoError(t, err)
		_, err = admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		require.NoError(t, err)
	}
	readOnly("on")
	require.NoError(t, svc.Publisher().Publish("orders", message.NewMessage("1", nil)))
	readyWithin(t, svc, http.StatusServiceUnavailable, "handlers: ok\n", "store: middleware: the intake is paused: ", "read-only")
	readOnly("off")
	readyWithin(t, svc, http.StatusOK, "store: ok\n")
	require.NoError(t, stop())
}

// asClerk lets the service work as a role of its own, which has all rights to the tables.
func (r *rig) asClerk() (role string, exec func(statement string)) {
	t := r.t
	r.store = withParameter(t, testenv.Postgres(t).NewDatabase(t), "pool_max_conns", "40")
	admin, err := pgx.Connect(t.Context(), strings.SplitN(r.store, "?", 2)[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close(context.Background())) })
	exec = func(statement string) {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	migrated, err := postgres.Open(t.Context(), r.store)
	require.NoError(t, err)
	_, err = migrated.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, migrated.Close())
	role = "clerk_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec("CREATE ROLE " + role + " LOGIN")
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	exec("GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role)
	exec("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO " + role)
	u, err := url.Parse(r.store)
	require.NoError(t, err)
	u.User = url.User(role)
	r.store = u.String()
	return role, exec
}

// A right that is missing when consumers are registered is an error at the start.
func TestMissingRightAtTheStart(t *testing.T) {
	r := newRig(t)
	role, exec := r.asClerk()
	exec("REVOKE INSERT ON millpond_consumer FROM " + role)
	c := r.config()
	c.Store.Migrate = false
	svc, err := router.New(t.Context(), c)
	require.NoError(t, err)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // or it would run for ever
	defer cancel()
	err = svc.Run(ctx)
	require.ErrorContains(t, err, `router: handler "stock": `)
	require.ErrorContains(t, err, "permission denied for table millpond_consumer")
}

// The right to write an inbox row is missing, so that no handler runs. When it is there
// nobody has to send a message for the service to notice.
func TestReadyAgainWithoutAMessage(t *testing.T) {
	r := newRig(t)
	role, exec := r.asClerk()
	exec("REVOKE INSERT ON millpond_inbox FROM " + role)

	c := r.config()
	c.Store.Migrate = false
	c.HTTP.Listen = "127.0.0.1:0"
	c.Inbox.Hold = middleware.HoldConfig{Limit: 200 * time.Millisecond, MinPause: 10 * time.Millisecond, MaxPause: 50 * time.Millisecond}
	svc, err := router.New(t.Context(), c)
	require.NoError(t, err)
	given := make(chan error, 1)
	svc.Use(func(next message.HandlerFunc) message.HandlerFunc { // the message does not come again
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := next(msg)
			given <- err
			return nil, nil
		}
	})
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	readyWithin(t, svc, http.StatusOK)
	require.NoError(t, svc.Publisher().Publish("orders", message.NewMessage("1", nil)))
	require.Error(t, <-given)
	readyWithin(t, svc, http.StatusServiceUnavailable, "store: middleware: the intake is paused: ", "permission denied")
	exec("GRANT INSERT ON millpond_inbox TO " + role)
	readyWithin(t, svc, http.StatusOK, "store: ok\n")
	require.Len(t, saying(r.log.String(), "intake has resumed"), 1)
	require.NoError(t, stop())
}

// However many ask, the store is asked once a second: what anybody can ask for must not be
// taken from the handlers.
func TestManyWhoAskWhetherTheServiceIsReadyShareAnAnswer(t *testing.T) {
	proxy, err := pgproxy.Start(testenv.Postgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	r := newRig(t)
	r.store = withParameter(t, proxy.URL(), "pool_max_conns", "40")
	pinged := new(atomic.Int64)
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	c.RetryWorker.Off = true // it asks as well
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("lasting", func(context.Context, *url.URL) (brokers.Broker, error) { return pinging{r.broker, pinged}, nil })
	svc := r.service(c)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	readyWithin(t, svc, http.StatusOK)

	before, begun := proxy.Stats(), time.Now()
	pinged.Store(0)
	var clients sync.WaitGroup
	answers := new(atomic.Int64)
	for range 100 {
		clients.Go(func() {
			for time.Since(begun) < 2*time.Second {
				if status, _ := get(t, svc, "/readyz"); status == http.StatusOK {
					answers.Add(1)
				}
			}
		})
	}
	clients.Wait()
	most := int64(time.Since(begun)/time.Second) + 2
	statements := 0
	for _, n := range proxy.Stats().Since(before).Statements {
		statements += n
	}
	const each = 2 // statements of a question
	require.LessOrEqual(t, int64(statements), each*most, proxy.Stats().Since(before).Statements)
	require.LessOrEqual(t, pinged.Load(), most)
	require.Greater(t, answers.Load(), int64(100))
	require.NoError(t, stop())
}

// pinging counts how often a broker is asked.
type pinging struct {
	brokers.Broker

	n *atomic.Int64
}

func (p pinging) Ping(context.Context) error {
	p.n.Add(1)
	return nil
}

// A client that goes away takes nobody's answer along.
func TestClientThatGivesUpLeavesTheAnswerToOthers(t *testing.T) {
	proxy, err := pgproxy.Start(testenv.Postgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	r := newRig(t)
	r.store = withParameter(t, proxy.URL(), "pool_max_conns", "40")
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	svc := r.service(c)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	readyWithin(t, svc, http.StatusOK)
	proxy.Freeze()
	require.Eventually(t, func() bool { // while the answer from before is told, there is nothing to give up
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+svc.HTTPAddr().String()+"/readyz", nil)
		assert.NoError(t, err)
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return errors.Is(err, context.DeadlineExceeded)
	}, 20*time.Second, 10*time.Millisecond)
	proxy.Thaw()
	readyWithin(t, svc, http.StatusOK)
	require.NoError(t, stop())
}

// Where a service answers is said, and loudly if nobody may have meant it.
func TestAddressIsSaidAtTheStart(t *testing.T) {
	for address, loud := range map[string]bool{":0": true, "127.0.0.1:0": false, "0.0.0.0:0": false} {
		r := newRig(t)
		c := r.config()
		c.HTTP.Listen = address
		svc := r.service(c)
		svc.Handle("stock", "orders", func(*message.Message) error { return nil })
		stop := r.run(svc)
		readyWithin(t, svc, http.StatusOK)
		_, port, err := net.SplitHostPort(svc.HTTPAddr().String())
		require.NoError(t, err)
		require.Contains(t, r.log.String(), "the service answers HTTP requests", address)
		require.Contains(t, r.log.String(), ":"+port, address)
		require.Equal(t, loud, strings.Contains(r.log.String(), "level=WARN"), "%s: %s", address, r.log.String())
		require.Equal(t, address != "127.0.0.1:0", strings.Contains(r.log.String(), "all interfaces"), address)
		require.NoError(t, stop())
	}
}

// A service that stops is alive and not ready, until its handlers have finished.
func TestNotReadyWhileDraining(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	svc := r.service(c)
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	svc.Handle("stock", "orders", func(*message.Message) error {
		begun <- struct{}{}
		<-finish
		return nil
	})
	stop := r.run(svc)
	r.publish("orders", "1")
	await(t, begun)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	readyWithin(t, svc, http.StatusServiceUnavailable, "handlers: the service stops\n")
	status, _ := get(t, svc, "/livez")
	require.Equal(t, http.StatusOK, status)
	close(finish)
	require.NoError(t, <-ended)
}

func TestAddressIsTaken(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	r := newRig(t)
	c := r.config()
	c.HTTP.Listen = taken.Addr().String()
	svc := r.service(c)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	err = svc.Run(t.Context())
	require.ErrorContains(t, err, "router: http.listen "+taken.Addr().String())
}

// complaining is a broker that tells a secret.
type complaining struct {
	brokers.Broker

	secret string
}

func (b complaining) Ping(context.Context) error {
	return errors.New("cannot log in as app with " + b.secret)
}

// What the adapters say of a password of the URL is not shown.
func TestReadinessHasNoSecrets(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	c.Broker.URL = router.NewURL("lasting://app:" + canary + "@h")
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("lasting", func(context.Context, *url.URL) (brokers.Broker, error) {
		return complaining{r.broker, canary}, nil
	})
	svc := r.service(c)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	body := readyWithin(t, svc, http.StatusServiceUnavailable, "broker: ")
	require.NotContains(t, body, canary)
	require.NoError(t, stop())
	require.NotContains(t, r.log.String(), canary)
}

// deaf is a broker that answers, and whose subscribers may be given up all the same.
type deaf struct {
	brokers.Broker

	given *atomic.Bool
}

func (b deaf) Ping(context.Context) error { return nil }

func (b deaf) Subscriber(c brokers.SubscriberConfig) (message.Subscriber, error) {
	s, err := b.Broker.Subscriber(c)
	return deafSubscriber{s, b.given}, err
}

type deafSubscriber struct {
	message.Subscriber

	given *atomic.Bool
}

func (s deafSubscriber) Receiving() error {
	if s.given.Load() {
		return errors.New("the group has lost this member of " + canary)
	}
	return nil
}

// A service whose subscriber the broker has given up is not ready, though the broker answers.
func TestNotReadyWhileNothingIsReceived(t *testing.T) {
	r := newRig(t)
	given := new(atomic.Bool)
	c := r.config()
	c.HTTP.Listen = "127.0.0.1:0"
	c.Broker.URL = router.NewURL("lasting://app:" + canary + "@h")
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("lasting", func(context.Context, *url.URL) (brokers.Broker, error) { return deaf{r.broker, given}, nil })
	svc := r.service(c)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	readyWithin(t, svc, http.StatusOK, "handlers: ok\n", "messages: ok\n")
	given.Store(true)
	body := readyWithin(t, svc, http.StatusServiceUnavailable, "handlers: ok\n", "store: ok\n", "broker: ok\n", "messages: stock gets none: the group has lost this member of …\n")
	require.NotContains(t, body, canary)
	given.Store(false)
	readyWithin(t, svc, http.StatusOK)
	require.NoError(t, stop())
}
