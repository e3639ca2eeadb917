package mysql_test

import (
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv"
)

// eventuallyListed waits until information_schema.innodb_trx is as a condition wants it. The server
// renews that list only once nobody has read it for 100 ms: another test may have read it before the
// transaction that this one looks for.
func eventuallyListed(t *testing.T, what string, condition func() bool) {
	t.Helper()
	testenv.EventuallyEvery(t, 120*time.Millisecond, what+" in the server's list", condition)
}
