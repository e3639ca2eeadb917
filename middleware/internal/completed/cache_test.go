package completed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// What one server has committed says nothing about another, nor about an earlier state of
// it; and a server that has not answered lately may be another one by now.
func TestHitsCountWhileTheServerIsKnown(t *testing.T) {
	t.Parallel()
	key := stores.Key{Consumer: stores.Consumer{Service: "s", Handler: "h"}, ID: []byte("a")}
	synctest.Test(t, func(t *testing.T) {
		c := New(10, time.Hour)
		add := func(server uint64) { c.Add(key, stores.Fingerprint{}, stores.TraceParent{}, server) }
		want := func(hit bool, when string) {
			t.Helper()
			if _, ok := c.Lookup(key, stores.Fingerprint{}); ok != hit {
				t.Errorf("%s: hit %v", when, ok)
			}
		}
		answers := func(server uint64, ago time.Duration, changed bool) {
			t.Helper()
			if got := c.Answered(server, time.Now().Add(-ago)); got != changed {
				t.Errorf("server %d: changed %v", server, got)
			}
		}
		add(0)
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble
		want(true, "a store that has no server")

		answers(1, 0, false)
		want(false, "whatever was known before the server was")
		add(1)
		answers(0, 0, false) // an answer that does not tell
		want(true, "the server has just answered")
		time.Sleep(Fresh + 1) //nolint:forbidigo // of the bubble
		want(false, "the server has not answered lately")
		answers(1, time.Second, false)
		want(true, "the server has answered again")

		c.Flush()
		add(1)
		want(false, "somebody is in doubt")
		answers(1, time.Millisecond, false)
		want(false, "what the server was asked before the doubt")
		answers(1, 0, false)
		want(true, "the server has answered since")

		time.Sleep(time.Second) //nolint:forbidigo // of the bubble
		answers(2, 0, true)
		want(false, "another server")
		add(1)
		want(false, "a commit at the server before")
		answers(1, time.Millisecond, false) // on its way since
		add(2)
		want(true, "a commit at this one")
	})
}
