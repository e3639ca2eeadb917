package pgtest

import (
	"testing"

	"github.com/millpond-go/millpond/internal/pgproxy"
)

// WarmedUp runs f until all its statements are prepared, and returns what it costs then.
func WarmedUp(tb testing.TB, proxy *pgproxy.Proxy, f func()) pgproxy.Stats {
	tb.Helper()
	const enough = 3
	for range enough {
		f()
	}
	before := proxy.Stats()
	f()
	return proxy.Stats().Since(before)
}
