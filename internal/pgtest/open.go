package pgtest

import (
	"strings"
	"testing"

	"github.com/millpond-go/millpond/stores"
)

// ErrorsHide opens stores at addresses that are wrong, and fails the test if one opens or
// if the secret is in its error.
func ErrorsHide(tb testing.TB, secret string, addresses ...string) {
	tb.Helper()
	for _, address := range addresses {
		_, err := stores.Open(tb.Context(), address)
		if err == nil {
			tb.Fatalf("%s was opened", address)
		}
		if strings.Contains(err.Error(), secret) {
			tb.Errorf("the password is in %q", err)
		}
		tb.Log(err)
	}
}
