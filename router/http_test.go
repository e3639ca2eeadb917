package router_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/router"
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
	server := testenv.PrivateKafka(t)
	proxy, err := pgproxy.Start(testenv.Postgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	u, err := url.Parse(proxy.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), canary) // which the server does not ask for
	r := newRig(t)
	r.store = withParameter(t, u.String(), "pool_max_conns", "40")
	c, err := read(r.file(router.URL("kafka://" + server.Address() + "/?create_topics=true")))
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
	body = readyWithin(t, svc, http.StatusServiceUnavailable, "handlers: ok\n", "store: ok\n")
	require.NotContains(t, body, "broker: ok")
	require.NoError(t, server.Start(t.Context()))
	readyWithin(t, svc, http.StatusOK)

	require.NoError(t, stop())
	require.NotContains(t, r.log.String(), canary)
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
	c.Broker.URL = router.URL("lasting://app:" + canary + "@h")
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
