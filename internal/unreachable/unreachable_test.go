package unreachable_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/unreachable"
)

// A process that ends while it connects does not say that the broker is away.
func TestCanceledDialIsNotTheBrokersFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:1")
	if err == nil {
		t.Fatal("a canceled dial succeeded")
	}
	if advice := unreachable.Advice(err, time.Second, ""); advice != "the caller gave up" {
		t.Errorf("%v: %q", err, advice)
	}
}
