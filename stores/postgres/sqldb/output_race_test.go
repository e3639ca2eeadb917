package sqldb_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// A goroutine that a handler has left behind may end its transaction while the outputs are taken.
func TestOutputsWhileTheTransactionIsEnded(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.VolatilePostgres(t).NewDatabase(t))
	for i := range 10 {
		a, tx := begin(t, s, pgtest.Claim(fmt.Sprint("ended ", i)))
		ended := make(chan error, 1)
		go func() { ended <- tx.Rollback() }()
		var err error
		for err == nil {
			err = a.(stores.Emitter).Emit(nil)
		}
		if !errors.Is(err, stores.ErrTxClosed) {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, stores.ErrTxManaged) {
			t.Error(err)
		}
		if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !errors.Is(err, stores.ErrTxManaged) {
			t.Error(err)
		}
	}
}
