package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A server whose port was taken, by one that looks just like it, does not take that
// one for itself, and gets its port back when it is free.
func TestStartOnTakenPort(t *testing.T) {
	var servers [2]*Server
	for i := range servers {
		server, err := Start(t.Context(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
		servers[i] = server
	}
	holder, other := servers[0], servers[1]
	if err := other.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.port = holder.port
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := other.Start(ctx); !errors.Is(err, errPortTaken) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("started on a port that is taken: %v", err)
	}
	started := make(chan error)
	go func() { started <- other.Start(t.Context()) }()
	if err := holder.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-started; err != nil {
		t.Error(err)
	}
}

func TestConf(t *testing.T) {
	conf := Config{Settings: map[string]string{
		"fsync": "off", "port": "1", "listen_addresses": "*", "application_name": "it's",
	}}.conf()
	for _, want := range []string{"fsync = 'off'\n", "listen_addresses = '127.0.0.1'\n", "application_name = 'it''s'\n", "wal_level = 'logical'\n"} {
		if !strings.Contains(conf, want) {
			t.Errorf("%q is not in\n%s", want, conf)
		}
	}
	if strings.Contains(conf, "port") {
		t.Errorf("a port is in\n%s", conf)
	}
}

func TestDatabaseURLs(t *testing.T) {
	if _, err := CreateDatabase(t.Context(), "host=127.0.0.1 password=secret"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("not a URL: %v", err)
	}
}
