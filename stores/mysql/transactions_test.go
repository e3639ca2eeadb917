package mysql_test

import (
	"testing"
	"time"
)

// eventuallyListed waits until information_schema.innodb_trx is as a condition wants it. The server
// renews that list only once nobody has read it for 100 ms: another test may have read it before the
// transaction that this one looks for.
func eventuallyListed(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	renewed := time.NewTicker(120 * time.Millisecond)
	defer renewed.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("the server does not list %s", what)
		}
		<-renewed.C
	}
}
