package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// placeOf returns the line of one place.
func placeOf(t *testing.T, lines []map[string]any, place string) map[string]any {
	t.Helper()
	for _, line := range lines {
		if line["place"] == place {
			return line
		}
	}
	require.Fail(t, "there is no such place", "%s in %v", place, lines)
	return nil
}

func TestErase(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		w.fails(2, charge, "card refused")
		waits := failure(charge, "waits", "later")
		waits.Status, waits.OrderKey = stores.StatusPending, []byte("customer-4711")
		w.fail(waits)
		w.quarantine("card refused-0", "another one")
		eu := w.outbox("kafka-eu", "card refused-0", "b", "c")
		w.settle(stores.Settlement{Published: eu[:1], Keep: true, Refused: []stores.RefusedOutput{{Number: eu[1], Attempts: 1, Error: "too large", Failed: true}}})

		w.run(exitUsage, "erase")
		w.run(exitUsage, "erase", "--dry-run")
		w.run(exitNothing, "erase", "--id", "u:no", "--yes")
		w.run(exitUsage, "erase", "--id", "u:card refused-1") // nobody can be asked
		id := []string{"erase", "--id", "u:card refused-0"}
		dry := w.run(exitPartly, append(id, "--dry-run", "-o", "jsonl")...)
		require.Contains(t, dry, `"place":"messages","erased":1,"waiting":0,"busy":0,"dry_run":true`)
		require.Contains(t, dry, `"place":"quarantine","erased":0,"waiting":1`)
		require.Contains(t, dry, `"place":"outbox published","erased":1`)
		require.Empty(t, w.objects("audit", "ls"), "a dry run changes nothing")

		w.terminal("n\n")
		w.run(exitError, id...)
		require.Contains(t, w.errB.String(), "Erase for good what is kept of 2 messages? [y/N]")
		w.terminal("y\n")
		w.run(exitPartly, append(id, "--reason", "request 17")...)
		require.Contains(t, w.errB.String(), "--unfinished")
		require.Contains(t, w.ok(append(id, "--unfinished", "--yes", "-o", "jsonl")...), `"place":"quarantine","erased":1`)
		w.run(exitNothing, append(id, "--unfinished", "--yes")...)

		shown := w.object(exitOK, "msg", "show", "--id", "u:card refused-0", "--consumer", charge.String())
		require.Equal(t, "discarded", shown["status"])
		require.Equal(t, "erased", shown["content"])
		require.NotContains(t, shown, "payload")
		require.NotEmpty(t, shown["fingerprint"])
		require.Contains(t, w.ok("msg", "show", "--id", "u:card refused-0", "--consumer", charge.String()), "erased")
		require.Len(t, w.objects("quarantine", "ls", "--status", "erased"), 1)
		require.Empty(t, w.objects("outbox", "ls", "--state", "published"))
		w.run(exitNothing, "msg", "retry", "--id", "u:card refused-0")

		lines := w.objects("erase", "--order-key", "customer-4711", "--unfinished", "--dry-run")
		require.EqualValues(t, 1, placeOf(t, lines, "messages")["erased"])
		require.Equal(t, "it has no order keys", placeOf(t, lines, "quarantine")["passed_by"])
		w.run(exitPartly, "erase", "--order-key", "customer-4711", "--yes")
		w.ok("erase", "--order-key", "customer-4711", "--unfinished", "--yes")
		lines = w.objects("erase", "--consumer", charge.Service, "--error-contains", "card", "--dry-run")
		require.EqualValues(t, 1, placeOf(t, lines, "messages")["erased"])
		require.Equal(t, "it has no consumers", placeOf(t, lines, "outbox failed")["passed_by"])
		w.ok("erase", "--topic", "orders", "--unfinished", "--since", "1h", "--yes")
		require.Empty(t, w.objects("outbox", "ls"))
		require.Empty(t, w.objects("outbox", "ls", "--state", "failed"))

		audit := w.objects("audit", "ls")
		require.Len(t, audit, 7)
		require.Equal(t, "outbox erase", audit[5]["verb"])
		require.Equal(t, "erase", audit[6]["verb"])
		require.Equal(t, "request 17", audit[6]["reason"])
		w.run(exitNothing, "erase", "--consumer", "no/body", "--yes")
	})
}
