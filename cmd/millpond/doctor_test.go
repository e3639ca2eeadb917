package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestDoctor(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		require.NotContains(t, w.ok("doctor"), "warning")
		require.Contains(t, w.errB.String(), "nothing was found that weakens a promise")
		w.fails(1, charge, "card refused")
		notes := w.objects("doctor")
		require.Contains(t, notes[len(notes)-1]["what"], "1 message has failed for good")

		w.now = func() time.Time { return time.Now().Add(time.Hour + 30*time.Second) }
		out := w.run(exitFound, "doctor")
		require.Regexp(t, `(?m)^warning +clock +the clocks of this machine and of the server differ by 1h0m[23]\ds\n +why +\S.*\n +fix +\S`, out)
		require.Equal(t, "millpond: 1 finding: see the fixes above\n", w.errB.String())
		var all []findingRecord
		require.NoError(t, json.Unmarshal([]byte(w.run(exitFound, "doctor", "-o", "json")), &all))
		require.Equal(t, "clock", all[0].Check)
		w.run(exitUsage, "doctor", "--role", "king")
	})
}

// What the broker and the configuration have to do with it is looked at with --config.
func TestDoctorOfAService(t *testing.T) {
	n := newSession(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "millpond.yaml")
	database := "sqlite://" + filepath.ToSlash(filepath.Join(dir, "test.db"))
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte("service: billing\nstore: {url: \""+database+"\"}\n"+text), 0o600))
	}
	n.ok("migrate", "up", "--store", database)
	write("broker: {url: \"memory://\"}\n")
	n.ok("doctor", "--config", file)
	write("broker: {url: \"memory://\"}\nretention: {window: 168h}\n")
	s, err := stores.Open(t.Context(), database)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: charge, Topic: "orders"}))
	require.Contains(t, n.ok("doctor", "--config", file), "nothing of billing/charge was ever purged")
	purger := s.(stores.Purger)
	require.NoError(t, purger.Announce(t.Context(), charge, time.Now().Add(-8*24*time.Hour)))
	require.NotContains(t, n.ok("doctor", "--config", file), "retention")
	write("broker: {url: \"memory://\"}\nretention: {window: 7h}\n")
	require.Contains(t, n.run(exitFound, "doctor", "--config", file), "completed messages of billing/charge are kept for 185h0m0s longer than 7h0m0s")
	write("broker: {url: \"memory://?delivery_limit=3\"}\nretry: {placement: redelivered, max_attempts: 5}\n")
	out := n.run(exitFound, "doctor", "--config", file)
	require.Contains(t, out, "its 5 attempts are as many deliveries, and the broker's limit is 3")
	require.Contains(t, out, "memory drops or dead-letters a message after 3 deliveries")
	write("broker: {url: \"amqp://ada:s3cret@127.0.0.1:1/\"}\n")
	out = n.run(exitFound, "doctor", "--config", file, "--timeout", "3s") + n.errB.String()
	require.Regexp(t, `(?m)^error +broker`, out)
	require.NotContains(t, out, "s3cret")
}

func TestRolesArePrinted(t *testing.T) {
	n := newSession(t)
	out := n.ok("roles", "--store", "postgres://?millpond_schema=inboxes&millpond_prefix=billing_")
	require.Contains(t, out, "-- migrator\nDO $$ BEGIN CREATE ROLE billing_migrator NOLOGIN;")
	require.Contains(t, out, "GRANT SELECT, INSERT, UPDATE, DELETE ON inboxes.billing_inbox TO billing_runtime;")
	require.Contains(t, n.ok("roles", "--store", "mysql://"), "GRANT SELECT, UPDATE ON millpond_outbox_lock TO millpond_runtime;")
	only := n.objects("roles", "--store", "mysql://", "--role", "readonly")
	require.Len(t, only, 1)
	require.Equal(t, "readonly", only[0]["role"])
	for _, wrong := range []string{"king", "runtime,king"} {
		n.run(exitUsage, "roles", "--store", "mysql://", "--role", wrong)
	}
	n.run(exitError, "roles", "--store", "sqlite://x.db")
	require.Contains(t, n.errB.String(), "sqlite has no roles")
}

// Nothing that a finding says has the password of a URL.
func TestDoctorHidesSecrets(t *testing.T) {
	n := newSession(t)
	u, err := url.Parse(postgresURL(t))
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), "s3cret-canary")
	n.vars[storeVariable] = u.String()
	out := n.run(exitFound, "doctor") + n.run(exitFound, "doctor", "-o", "json") // its tables are not there
	require.Contains(t, out, "millpond migrate up")
	require.NotContains(t, out+n.errB.String(), "s3cret-canary")
}
