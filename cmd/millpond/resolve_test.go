package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// What was done by hand is completed, with a note of who has said so.
func TestResolveCompletesWithANote(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		w.fails(3, charge, "card refused")
		unconfirmed := failure(charge, "unconfirmed", "the effect may have happened")
		unconfirmed.Class, unconfirmed.Cause = stores.ClassUnconfirmed, stores.CauseOf(stores.ClassUnconfirmed, unconfirmed.Error)
		w.fail(unconfirmed)
		same := failure(charge, "timeout", "the effect may have happened")
		same.Class, same.Cause = stores.ClassTimeout, stores.CauseOf(stores.ClassTimeout, same.Error)
		w.fail(same)
		require.Len(t, w.objects("cause", "ls"), 3, "the unconfirmed are a cause of their own")
		require.Len(t, w.objects("cause", "ls", "--class", "unconfirmed"), 1)

		w.run(exitUsage, "msg", "resolve", "--class", "unconfirmed", "--yes")
		require.Contains(t, w.errB.String(), "resolve needs a note: say with --reason how it was done")
		require.Contains(t, w.ok("msg", "resolve", "--class", "unconfirmed", "--dry-run"), "would resolve 1 message\n")
		require.Equal(t, "resolved 1 message: completed, and not run again\n", w.ok("msg", "resolve", "--class", "unconfirmed", "--yes", "--reason", "found at the provider"))
		w.run(exitNothing, "msg", "resolve", "--class", "unconfirmed", "--yes", "--reason", "found at the provider")
		require.Equal(t, "completed", w.object(exitOK, "msg", "show", "--consumer", "billing/charge", "--id", "u:unconfirmed")["status"])
		entry := w.objects("audit", "ls")[0]
		require.Equal(t, []any{"resolve", "failed", "completed", "found at the provider"}, []any{entry["verb"], entry["before"], entry["after"], entry["reason"]})

		some := w.objects("msg", "ls", "--error-contains", "refused")
		number, gone := itoa(some[0]["number"]), itoa(some[1]["number"])
		w.ok("msg", "discard", number)
		w.ok("msg", "resolve", number, gone, "--reason", "paid in cash")
		w.run(exitNothing, "msg", "resolve", gone, "--reason", "again")
		left := w.object(exitPartly, "msg", "resolve", gone, itoa(some[2]["number"]), "--reason", "by hand")
		require.EqualValues(t, 1, left["changed"])
		require.EqualValues(t, 1, left["missing"])
		w.batch = 1
		w.terminal("y\n")
		require.Contains(t, w.ok("msg", "resolve", "--all", "--reason", "all done"), "resolved 1 message")
		require.Empty(t, w.objects("msg", "ls"))
	})
}

// The holder of a lease, until when, and its attempts are told; operators leave it alone.
func TestLeasedMessagesAreToldAndResolved(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		f := failure(charge, "leased", "")
		f.Status, f.Class, f.Start, f.Holder, f.DueIn, f.Attempts = stores.StatusPending, stores.ClassInterrupted, true, "host/4711/abc/1", time.Hour, 2
		w.fail(f)
		require.Regexp(t, `interrupted +2 .* leased until \d+ \w+ from now by host/4711/abc/1`, w.ok("msg", "ls"))
		m := w.objects("msg", "ls")[0]
		number := itoa(m["number"])
		require.Equal(t, "host/4711/abc/1", m["holder"])
		require.NotEmpty(t, m["due_at"])
		require.Regexp(t, "leased by host/4711/abc/1, which runs it or is dead, until 20", w.ok("msg", "show", number))
		left := w.object(exitPartly, "msg", "resolve", number, "--reason", "by hand")
		require.EqualValues(t, 1, left["reserved"])
		require.Contains(t, w.ok("msg", "resolve", number, "--reason", "by hand", "--break"), "resolved 1 message")
		require.Equal(t, "reserved", w.objects("audit", "ls")[0]["before"])
	})
}
