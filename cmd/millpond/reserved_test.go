package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// What a retry worker has reserved is told alike by every view, and --break takes it away
// from a dead worker at once.
func TestReservedMessagesAreToldAlikeAndFreed(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		w.fails(3, charge, "card refused")
		w.ok("msg", "retry", "--all", "--yes")
		reserve := func(n int) []stores.Retry {
			due, err := w.store.Due(t.Context(), stores.DueQuery{Consumer: charge, Limit: n, Reserve: time.Hour})
			require.NoError(t, err)
			require.Len(t, due, n)
			return due
		}
		had := reserve(2)
		reserved := w.objects("msg", "ls", "--reserved")
		require.Len(t, reserved, 2)
		number := itoa(reserved[0]["number"])
		for _, m := range w.objects("msg", "ls") {
			require.Equal(t, m["reserved"], w.object(exitOK, "msg", "show", itoa(m["number"]))["reserved"])
		}
		require.Regexp(t, `(\d+ \w+ ago|now) +reserved `, w.ok("msg", "ls", "--reserved"))
		require.NotContains(t, w.outB.String(), "from now")
		require.Regexp(t, `status +pending, reserved by a retry worker, which may be running it, until 20\S+ \(.* from now\) unless it renews that\n`, w.ok("msg", "show", number))

		for _, verb := range []string{"retry", "discard"} {
			preview := w.object(exitOK, "msg", verb, "--all", "--dry-run")
			require.EqualValues(t, 3, preview["matching"])
			require.EqualValues(t, 2, preview["reserved"])
			require.Contains(t, w.ok("msg", verb, "--all", "--dry-run"), "would "+verb+" 1 message\nwould leave 2 messages alone, because a retry worker has reserved")
			require.Contains(t, w.ok("msg", verb, "--all", "--dry-run", "--break"), "would "+verb+" 3 messages\n")
			left := w.object(exitPartly, "msg", verb, number)
			require.EqualValues(t, 1, left["reserved"])
			require.EqualValues(t, 0, left["busy"])
			require.Equal(t, "millpond: 1 message left alone, because a retry worker has reserved it and may be running it: --break takes it from the worker\n", w.errB.String())
		}
		require.Equal(t, "1 message is due now, and waits for a retry worker\n", w.ok("msg", "retry", number, "--break", "--reason", "its worker is dead"))
		entry := w.objects("audit", "ls", "--limit", "1")[0]
		require.Equal(t, "reserved", entry["before"])
		require.Equal(t, "pending", entry["after"])
		require.Equal(t, "its worker is dead", entry["reason"])
		require.Len(t, w.objects("msg", "ls", "--reserved"), 1)
		require.NoError(t, w.store.Renew(t.Context(), had, time.Hour))
		reserve(2) // the one that nobody had, and the one that was freed
		require.Equal(t, "discarded 3 messages\n", w.ok("msg", "discard", "--all", "--break", "--yes"))
		w.run(exitNothing, "msg", "retry", "--reserved", "--break", "--yes")
	})
}
