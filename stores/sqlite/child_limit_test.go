//go:build linux || darwin

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func init() { childRoles["full"] = fillUp }

// fillUp makes a COMMIT fail in the middle of its write: the log may not grow.
func fillUp(ctx context.Context, s *Store) error {
	signal.Ignore(syscall.SIGXFSZ)
	attempt := func(id string) error {
		a, verdict, err := s.Begin(ctx, claimOf(id))
		if err != nil {
			return err
		}
		if verdict.Outcome != stores.Claimed {
			return fmt.Errorf("outcome %v", verdict.Outcome)
		}
		tx, _ := TxFromContext(a.Context(ctx))
		if _, err := tx.Exec("INSERT INTO effects VALUES (?)", id); err != nil {
			return errors.Join(err, a.Rollback(ctx))
		}
		return a.Commit(ctx)
	}
	if err := attempt("before"); err != nil {
		return err
	}
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	low := limit
	low.Cur = uint64(info.Size()) + 100
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		return err
	}
	fmt.Println("unknown:", errors.Is(attempt("failed"), stores.ErrCommitUnknown))
	_, err = s.Resolve(ctx, claimOf("failed").Key)
	fmt.Println("cannot resolve:", errors.Is(err, stores.ErrUnavailable))
	err = s.Quarantine(ctx, stores.Quarantined{Consumer: billing, Reason: stores.ReasonNoKey})
	fmt.Println("cannot quarantine:", errors.Is(err, stores.ErrUnavailable))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	completed, err := s.Resolve(ctx, claimOf("failed").Key)
	fmt.Println("not completed:", !completed, err)
	fmt.Println("again:", attempt("failed"))
	return nil
}

func TestFailedCommitIsUnknown(t *testing.T) {
	o := open(t)
	c := startChild(t, "full", o.path)
	require.Equal(t, []string{
		"unknown: true", "cannot resolve: true", "cannot quarantine: true", "not completed: true <nil>", "again: <nil>",
	}, c.rest())
	require.NoError(t, c.Wait())
	o.requireCounts(2, 2)
}
