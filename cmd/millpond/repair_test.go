package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
)

// From the causes to a repaired one, as an operator does it.
func TestFromCausesToRepaired(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.fails(5, charge, "card refused for order")
		w.fails(2, mail, "smtp: connection refused")

		causes := w.objects("cause", "ls")
		require.Len(t, causes, 2)
		require.Equal(t, "billing/charge", causes[0]["consumer"])
		require.EqualValues(t, 5, causes[0]["failed"])
		cause, _ := causes[0]["cause"].(string)
		require.Contains(t, w.ok("cause", "ls"), cause)
		require.Len(t, w.objects("msg", "ls", "--cause", cause), 5)

		preview := w.object(exitOK, "msg", "retry", "--cause", cause, "--dry-run")
		require.EqualValues(t, 5, preview["matching"])
		require.EqualValues(t, 0, preview["changed"])
		require.Len(t, preview["causes"], 1)
		require.Len(t, w.objects("msg", "ls", "--status", "failed"), 7, "a dry run changes nothing")

		w.batch = 2 // so there are three
		w.terminal("y\n")
		require.Equal(t, "5 messages are due now, and wait for a retry worker\n", w.ok("msg", "retry", "--cause", cause, "--reason", "fixed in v2"))
		require.Contains(t, w.errB.String(), "Retry 5 messages? [y/N]")
		require.Contains(t, w.errB.String(), "[========================      ] changed 4 of 5")
		require.Len(t, w.objects("msg", "ls", "--status", "pending"), 5)

		for i := range 5 {
			w.complete(failure(charge, fmt.Sprintf("card refused for order-%d", i), ""))
		}
		require.Len(t, w.objects("cause", "ls"), 1)

		audit := w.objects("audit", "ls")
		require.Len(t, audit, 5)
		require.Equal(t, "fixed in v2", audit[0]["reason"])
		require.True(t, strings.HasPrefix(fmt.Sprint(audit[0]["actor"]), "ada@"))
		require.Equal(t, "failed", audit[0]["before"])
		require.Equal(t, "pending", audit[0]["after"])

		done := w.object(exitOK, "msg", "show", "--consumer", "billing/charge", "--id", "u:card refused for order-1")
		require.Equal(t, "completed", done["status"])
	})
}

func TestSelections(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	onEveryStore(t, func(t *testing.T, w *world) {
		w.fails(3, charge, "card refused")
		w.fails(2, mail, "no route to host")
		timeout := failure(mail, "slow", "deadline exceeded")
		timeout.Class, timeout.Topic = stores.ClassTimeout, "letters"
		w.fail(timeout)
		for _, test := range []struct {
			want int
			args []string
		}{
			{6, nil},
			{3, []string{"--consumer", "billing/charge"}},
			{6, []string{"--consumer", "billing"}},
			{1, []string{"--class", "timeout"}},
			{1, []string{"--topic", "letters"}},
			{2, []string{"--error-contains", "route to"}},
			{0, []string{"--error-contains", "%"}},
			{6, []string{"--since", "1h"}},
			{0, []string{"--until", "1h"}},
			{0, []string{"--status", "discarded"}},
			{1, []string{"--id", "u:slow"}},
			{1, []string{"--id", "hex:753a736c6f77"}},
			{1, []string{"--consumer", "billing/mail", "--class", "timeout"}},
			{0, []string{"--consumer", "billing/charge", "--class", "timeout"}},
		} {
			require.Len(t, w.objects(append([]string{"msg", "ls"}, test.args...)...), test.want, test.args)
			if test.want > 0 && test.args != nil {
				preview := w.object(exitOK, append([]string{"msg", "retry", "--dry-run"}, test.args...)...)
				require.EqualValues(t, test.want, preview["matching"], test.args)
			} else if test.args != nil {
				w.run(exitNothing, append([]string{"msg", "retry", "--yes"}, test.args...)...)
			}
		}
		require.Empty(t, w.objects("audit", "ls"))
	})
}

func TestNoCauses(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		require.Empty(t, w.ok("cause", "ls"))
		require.Equal(t, "no message is pending or failed\n", w.errB.String())
		w.fails(1, charge, "card refused")
		for _, filter := range []string{"--class=timeout", "--status=discarded", "--until=1h", "--consumer=billing/mail"} {
			require.Empty(t, w.ok("cause", "ls", filter))
			require.Equal(t, "no such causes\n", w.errB.String(), filter)
		}
	})
}

func TestPages(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.fails(5, charge, "card refused")
		require.Len(t, w.objects("msg", "ls", "--limit", "2"), 2)
		w.ok("msg", "ls", "--limit", "2")
		_, before, found := strings.Cut(w.errB.String(), "--before ")
		require.True(t, found)
		rest := w.objects("msg", "ls", "--before", strings.TrimSpace(before))
		require.Len(t, rest, 3)
		w.ok("msg", "ls", "--limit", "5", "--before", "1")
		require.Contains(t, w.errB.String(), "no such messages")
	})
}

func TestDecisionsOnSingleMessages(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.fails(3, charge, "card refused")
		numbers := []string{}
		for _, m := range w.objects("msg", "ls") {
			numbers = append(numbers, itoa(m["number"]))
		}
		w.run(exitUsage, "msg", "show", "--consumer", "charge", "--id", "u:order-1")
		require.Equal(t, "millpond: --consumer is \"charge\", which names no handler: write service/handler\n", w.errB.String())
		require.Equal(t, "discarded 1 message\n", w.ok("msg", "discard", numbers[0]))
		require.Len(t, w.objects("msg", "ls"), 2, "what is discarded is out of the way")
		require.Len(t, w.objects("msg", "ls", "--status", "discarded"), 1)
		discarded := w.objects("cause", "ls", "--status", "discarded,failed")
		require.Len(t, discarded, 1)
		require.EqualValues(t, 1, discarded[0]["discarded"])
		require.EqualValues(t, 2, discarded[0]["failed"])
		require.Regexp(t, `CLASS +FAILED +PENDING +DISCARDED +FIRST.*\n.* transient +2 +0 +1 `, w.ok("cause", "ls", "--status", "discarded,failed"))
		w.run(exitNothing, "msg", "discard", numbers[0])
		require.Equal(t, "millpond: already discarded\n", w.errB.String())
		w.run(exitNothing, "msg", "discard", numbers[0], "4711")
		require.Equal(t, "millpond: already discarded: 1 message; the other numbers match nothing\n", w.errB.String())
		w.run(exitNothing, "msg", "discard", "4711")
		require.Equal(t, "millpond: nothing matched\n", w.errB.String())
		require.Equal(t, "1 message is due now, and waits for a retry worker\n", w.ok("msg", "retry", numbers[0]), "by its number, also a discarded one")

		answer := w.object(exitPartly, "msg", "discard", numbers[1], "4711")
		require.EqualValues(t, 1, answer["changed"])
		require.EqualValues(t, 1, answer["missing"])
		require.Contains(t, w.errB.String(), "1 number matches no message that this command can change")
		w.run(exitNothing, "msg", "retry", "4711")
		w.run(exitNothing, "msg", "show", "4711")
		w.run(exitUsage, "msg", "discard", "--status", "discarded")
		more := w.object(exitPartly, "msg", "discard", numbers[1], numbers[2])
		require.EqualValues(t, 1, more["already"])
		require.Equal(t, "millpond: already discarded: 1 message\n", w.errB.String())
		w.run(exitNothing, "msg", "discard", numbers[1], numbers[2])
		require.Equal(t, "millpond: already discarded: 2 messages\n", w.errB.String())
		require.Equal(t, "2 messages are due now, and wait for a retry worker\n", w.ok("msg", "retry", "--status", "discarded", "--yes"))
	})
}

func TestRetryWithoutContentWaitsForTheBroker(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		f := failure(charge, "big", "too big")
		f.Content = &stores.Content{State: stores.ContentTooLarge}
		f.Placement = stores.PlacementRedelivered
		w.fail(f)
		require.Contains(t, w.ok("msg", "retry", "--all", "--yes"), "1 message waits for the broker to deliver it again")
		require.NotContains(t, w.outB.String(), "due now")
		require.Contains(t, w.ok("msg", "ls"), "on redelivery")
		require.Regexp(t, `pending, waits for the broker to deliver it again, due 20\d\d-\d\d-\d\dT[\d:]+Z \(now\)\n`, w.ok("msg", "show", "1"))
	})
}

// A message that is being processed is left alone.
func TestBusy(t *testing.T) {
	w := newWorld(t, postgresURL(t))
	w.fails(2, charge, "card refused")
	w.ok("msg", "retry", "--all", "--yes")
	inHand := failure(charge, "card refused-0", "")
	attempt := w.take(inHand)
	defer func() { _ = attempt.Rollback(context.Background()) }() // of a test that has failed
	answer := w.object(exitPartly, "msg", "discard", "--all", "--yes")
	require.EqualValues(t, 1, answer["changed"])
	require.EqualValues(t, 1, answer["busy"])
	require.Contains(t, w.errB.String(), "an attempt of each is under way")
	require.NoError(t, attempt.Commit(t.Context()))
	require.Len(t, w.objects("audit", "ls", "--limit", "1"), 1)
}

func TestConfirmation(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.fails(2, charge, "card refused")
		w.run(exitUsage, "msg", "retry")
		w.run(exitUsage, "msg", "retry", "--all", "--cause", "x")
		w.run(exitUsage, "msg", "retry", "--all")
		require.Contains(t, w.errB.String(), "this would retry 2 messages: add --yes")
		for _, answer := range []string{"n\n", "\n", "", "yup\n"} {
			w.terminal(answer)
			w.run(exitError, "msg", "retry", "--all")
			require.Contains(t, w.errB.String(), "nothing was changed")
		}
		require.Empty(t, w.objects("audit", "ls"))
		w.terminal("YES\n")
		w.ok("msg", "retry", "--all")
	})
}

func TestQuarantine(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for i := range 4 {
			w.quarantine(fmt.Sprintf("q%d", i), fmt.Sprintf(`{"n":%d}`, i))
		}
		w.quarantine("redacted", "***", func(q *stores.Quarantined) { q.Codec, q.OneWay = "redact", true })
		w.quarantine("broken", "\xff\x00", func(q *stores.Quarantined) { q.Reason, q.ID = stores.ReasonUndecodable, nil })
		rows := map[string]string{}
		for _, q := range w.objects("quarantine", "ls") {
			rows[fmt.Sprint(q["uuid"])] = itoa(q["row"])
		}
		require.Len(t, rows, 6)
		require.Len(t, w.objects("quarantine", "ls", "--reason", "undecodable", "--consumer", "billing/charge"), 1)
		require.Empty(t, w.objects("quarantine", "ls", "--consumer", "billing/mail"))
		require.Equal(t, map[string]any{"base64": "/wA="}, w.object(exitOK, "quarantine", "show", rows["broken"])["payload"])

		require.Contains(t, w.ok("quarantine", "release", rows["q0"], "--dry-run"), "would be released")
		require.Contains(t, w.ok("quarantine", "release", rows["q0"], "--reason", "a different order"), "released")
		require.Contains(t, w.ok("quarantine", "show", rows["q0"]), "released, runs under the id x:quarantine/"+rows["q0"])
		require.Len(t, w.objects("msg", "ls", "--id", "x:quarantine/"+rows["q0"]), 1)
		w.run(exitNothing, "quarantine", "release", rows["q0"])
		require.Regexp(t, "row "+rows["q0"]+` was released before, at 20\d\d-.* \(.*\), and runs under the id x:quarantine/`+rows["q0"], w.errB.String())
		require.Contains(t, w.run(exitNothing, "quarantine", "reject", rows["q0"], "--dry-run", "-o", "json"), `"status": "released"`)
		w.run(exitError, "quarantine", "release", rows["redacted"])
		w.run(exitError, "quarantine", "release", rows["redacted"], "--dry-run")
		w.run(exitError, "quarantine", "release", rows["q0"], rows["redacted"])
		w.run(exitNothing, "quarantine", "release", rows["q0"], "4711")
		w.run(exitNothing, "quarantine", "release", "4711")
		w.run(exitNothing, "quarantine", "show", "4711")
		w.run(exitNothing, "quarantine", "reject", "4711", "4712")
		require.Contains(t, w.run(exitPartly, "quarantine", "reject", rows["q1"], "4711", rows["q0"], rows["redacted"]), "rejected")
		require.Contains(t, w.errB.String(), "2 of 4 rows were not changed")
		require.Regexp(t, "was rejected before, at 20.*\n.* was released before, at 20", w.run(exitNothing, "quarantine", "reject", rows["q1"], rows["q0"]))
		require.Contains(t, w.ok("quarantine", "reopen", rows["q1"], "--dry-run"), "would be held")
		require.Contains(t, w.ok("quarantine", "reopen", rows["q1"], "--reason", "the wrong row"), "held")
		w.run(exitNothing, "quarantine", "reopen", rows["q1"])
		require.Contains(t, w.errB.String(), "row "+rows["q1"]+" is held: there is no rejection to undo")
		w.run(exitNothing, "quarantine", "reopen", rows["q0"])
		require.Regexp(t, `was released before, at`, w.errB.String())
		require.Contains(t, w.ok("audit", "ls", "--limit", "1"), "the wrong row")
		require.Contains(t, w.ok("quarantine", "reject", rows["q1"]), "rejected")
		w.run(exitUsage, "quarantine", "reject")
		w.run(exitUsage, "quarantine", "ls", "--status", "lost")
		require.Len(t, w.objects("quarantine", "ls", "--status", "rejected"), 2)

		released := w.objects("audit", "ls")[4]
		require.Equal(t, "release", released["verb"])
		require.Equal(t, "a different order", released["reason"])
		stats := w.ok("stats")
		require.Regexp(t, `billing/charge +quarantined +3`, stats)
	})
}

// A consumer whose name is misspelt is no consumer of which nothing has failed.
func TestConsumerThatTheStoreDoesNotKnow(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.fail(failure(charge, "a", "boom"))
		for _, args := range [][]string{
			{"msg", "ls"}, {"cause", "ls"}, {"quarantine", "ls"}, {"msg", "retry", "--yes"}, {"msg", "discard", "--dry-run"}, {"msg", "show", "--id", "u:a"},
		} {
			require.Empty(t, w.run(exitNothing, append(args, "--consumer", "billing/chrage")...), args)
			require.Contains(t, w.errB.String(), `the store knows no consumer "billing/chrage": it has billing/charge, billing/mail`, args)
		}
		w.run(exitNothing, "msg", "ls", "--consumer", "biling")
		require.Contains(t, w.errB.String(), `the store knows no service "biling": it has billing`)
		w.ok("msg", "ls", "--consumer", "billing/mail")
		require.Contains(t, w.errB.String(), "no such messages", "nothing of it has failed")
		require.Len(t, w.objects("msg", "ls", "--consumer", "billing"), 1)
	})
}
