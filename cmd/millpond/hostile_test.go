package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
)

// Everything that a message or an operator says contains what a terminal acts on, and
// none of it reaches one.
func TestNothingHostileReachesTheTerminal(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	t.Chdir(t.TempDir()) // should a file be made after all
	onStores(t, func(t *testing.T, w *world) {
		w.terminal("n\n")
		for i, h := range hostile {
			f := failure(charge, h, "failed: "+h)
			f.Class, f.Cause, f.Topic, f.Coordinates, f.OrderKey = stores.Class("c"+h), "g"+h, "t"+h, "o"+h, []byte("k"+h)
			payload := []string{h, `{"x":"` + h + `"}`, strings.Repeat(h, 3000)}[i%3]
			f.Content = &stores.Content{
				State: stores.ContentKept, Codec: "codec" + h, UUID: h, Metadata: map[string]string{"m" + h: h}, Payload: []byte(payload),
			}
			w.fail(f)
			w.quarantine(h, payload, func(q *stores.Quarantined) {
				q.Detail, q.Topic, q.Coordinates, q.Codec, q.Metadata = "d"+h, "t"+h, "o"+h, "codec"+h, map[string]string{"m" + h: h}
			})
		}
		calls := [][]string{
			{"msg", "ls"},
			{"cause", "ls"},
			{"stats"},
			{"quarantine", "ls"},
			{"audit", "ls"},
			{"msg", "retry", "--all", "--dry-run"},
			{"msg", "retry", "--all", "--yes", "--reason", hostile[1], "--actor", hostile[2]},
			{"quarantine", "release", "1", "--reason", hostile[3], "--actor", hostile[4]},
			{"audit", "ls"},
			{"msg", "retry", "--all"},
		}
		for _, m := range w.objects("msg", "ls", "--limit", "1000") {
			number := itoa(m["number"])
			calls = append(calls, []string{"msg", "show", number}, []string{"msg", "show", number, "--payload", "none"})
		}
		for _, q := range w.objects("quarantine", "ls", "--limit", "1000") {
			calls = append(calls, []string{"quarantine", "show", itoa(q["row"])})
		}
		calls = append(calls, []string{"msg", "show", "1", "--payload", "hex"})
		outputs, wrong := outputs, len(calls)
		for _, h := range hostile { // in the call itself
			calls = append(calls, []string{h}, []string{"--" + h}, []string{"-" + h}, []string{"msg", h}, []string{"msg", "show", h},
				[]string{"msg", "ls", "--since", h}, []string{"msg", "ls", "--status", h}, []string{"msg", "ls", "--id", h},
				[]string{"msg", "ls", "--consumer", "/" + h}, []string{"stats", "-o", h}, []string{"stats", "--store", h},
				[]string{"stats", "--store", "sqlite://" + h}, []string{"stats", "--store", "postgres://127.0.0.1:1/" + h})
		}
		for i, call := range calls {
			if i == wrong {
				outputs = outputs[:1] // errors are the same in all
			}
			for _, output := range []string{"table", "json", "jsonl"} {
				w.outB.Reset()
				w.errB.Reset()
				run(w.ctx, w.console, append(call, "-o", output))
				requireHarmless(t, strings.ReplaceAll(w.outB.String(), "\t", ""))
				requireHarmless(t, strings.NewReplacer("\r", "", "\t", "").Replace(w.errB.String())) // of the progress bar, and of usages
			}
		}
	})
}

func TestPayloads(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		shown := 0.0
		show := func(payload string, args ...string) string {
			t.Helper()
			shown++
			f := failure(charge, itoa(shown), "failed")
			f.Content.Payload = []byte(payload)
			w.fail(f)
			number := itoa(w.objects("msg", "ls", "--limit", "1")[0]["number"])
			return w.ok(append([]string{"msg", "show", number}, args...)...)
		}
		const big = `{"n":12345678901234567890.50,"a":[1,{"n":1}]}`
		require.Contains(t, show(big, "-o", "jsonl"), `"payload":{"json":`+big+`}`)
		require.Contains(t, show("plain", "-o", "jsonl"), `"payload":{"text":"plain"}`)
		require.Contains(t, show("\xff\x00", "-o", "jsonl"), `"payload":{"base64":"/wA="}`)
		require.NotContains(t, show("not asked for", "--payload", "none", "-o", "jsonl"), "not asked for")
		require.Contains(t, show(`{"a":{"b":1}}`), "\n    \"a\": {\n      \"b\": 1\n    }\n")
		require.Contains(t, show("two\nnumber 7"), "\n  two\n  number 7\n", "indented, so that it looks like no field")

		long := strings.Repeat("x", shownPayload) + "END"
		require.NotContains(t, show(long), "END")
		require.Contains(t, w.outB.String(), "payload, 4,099 bytes, of which the first 4,096")
		require.Contains(t, show(long+"1", "--max-payload-bytes", "0"), "END1")
		require.Contains(t, show(long+"2", "-o", "json"), "END2")
		require.Contains(t, show("abc\x1bd", "--max-payload-bytes", "3", "-o", "jsonl"), `"payload":{"text":"abc"},"payload_truncated":true`)
		require.Contains(t, show("\x1b[2J", "--payload", "hex"), "1b 5b 32 4a")

		raw := "\x1b[2J\xff\n" + long
		require.Equal(t, raw, show(raw, "--payload", "raw"), "nothing but the payload, and all of it")
		w.terminal("")
		w.run(exitUsage, "msg", "show", "1", "--payload", "raw")
		require.Equal(t, big, w.ok("msg", "show", "1", "--payload", "raw", "--force")) //nolint:testifylint // byte by byte
	})
}
