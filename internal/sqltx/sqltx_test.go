package sqltx_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

var (
	errDone  = errors.New("done")
	errFirst = errors.New("first")
	errLater = errors.New("later")
)

func running(bool) bool { return false }

func keep(err error) func(error, bool) error {
	return func(first error, _ bool) error { return errors.Join(first, err) }
}

func TestAGateCountsWhoIsInside(t *testing.T) {
	t.Parallel()
	var g sqltx.Gate
	require.NoError(t, g.Acquire(errDone, func(alone bool) bool { require.True(t, alone); return false }))
	require.NoError(t, g.Acquire(errDone, func(alone bool) bool { require.False(t, alone); return false }))
	require.True(t, g.Shared())
	g.Release(func(_ error, alone bool) error { require.False(t, alone); return nil })
	require.False(t, g.Shared())
	require.False(t, g.Closed())
	require.False(t, g.Close(), "a statement runs")
	require.True(t, g.Closed())
	g.Release(func(error, bool) error { t.Error("what fails after the end is the store's doing"); return errLater })
	require.True(t, g.Close())
	require.NoError(t, g.Failure())
}

func TestAGateRefusesAfterTheEnd(t *testing.T) {
	t.Parallel()
	var g sqltx.Gate
	require.ErrorIs(t, g.Acquire(errDone, func(bool) bool { return true }), stores.ErrTxEnded)
	require.True(t, g.Close(), "who was refused is not inside")
	require.ErrorIs(t, g.Acquire(errDone, running), errDone)
}

func TestAGateKeepsTheFirstFailure(t *testing.T) {
	t.Parallel()
	var g sqltx.Gate
	require.NoError(t, g.Acquire(errDone, running))
	g.Release(keep(errFirst))
	g.Fail(errLater)
	require.Equal(t, errors.Join(nil, errFirst), g.Failure())
	g.Judge(func(error) error { return nil }) // a savepoint has undone it
	require.NoError(t, g.Failure())
	g.Close()
	g.Fail(errLater) // of COMMIT
	require.Equal(t, errLater, g.Failure())
}

func TestAGateOfManyGoroutinesLetsNobodyInAfterItsEnd(t *testing.T) {
	t.Parallel()
	var (
		g       sqltx.Gate
		inside  sync.WaitGroup
		refused = make(chan struct{}, 8)
	)
	for range 8 {
		inside.Go(func() {
			for g.Acquire(errDone, running) == nil {
				g.Release(keep(nil))
			}
			refused <- struct{}{}
		})
	}
	g.Close()
	inside.Wait()
	require.Len(t, refused, 8)
	require.True(t, g.Close())
}

const pkg sqltx.Package = "store"

func TestACommitIsDecidedOnce(t *testing.T) {
	t.Parallel()
	var o sqltx.Outcome
	require.ErrorIs(t, o.Commit(func() error { return pkg.CommitUnknown(errFirst) }), stores.ErrCommitUnknown)
	err := o.Commit(func() error { t.Error("twice"); return nil })
	require.EqualError(t, err, "store: "+stores.ErrCommitUnknown.Error()+": first")
	require.NoError(t, o.Rollback(pkg, func() error { t.Error("after the end"); return nil }))
}

func TestACommitThatPanicsProvesNothing(t *testing.T) {
	t.Parallel()
	var o sqltx.Outcome
	require.Panics(t, func() { _ = o.Commit(func() error { panic("a tracer") }) })
	require.ErrorIs(t, o.Commit(func() error { t.Error("twice"); return nil }), stores.ErrCommitUnknown)
}

func TestARollbackLeavesNothingToCommit(t *testing.T) {
	t.Parallel()
	var o sqltx.Outcome
	require.EqualError(t, o.Rollback(pkg, func() error { return errFirst }), "store: rollback: first")
	require.NoError(t, o.Rollback(pkg, func() error { t.Error("twice"); return nil }))
	require.ErrorIs(t, o.Commit(func() error { t.Error("after the end"); return nil }), stores.ErrNotCommitted)

	var quiet sqltx.Outcome
	require.NoError(t, quiet.Rollback(pkg, func() error { return nil }))
}

func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	require.Equal(t, stores.ErrTxAborted, sqltx.Aborted(nil))
	require.ErrorIs(t, sqltx.Aborted(errFirst), stores.ErrTxAborted)
	require.ErrorIs(t, sqltx.Aborted(errFirst), errFirst)
	require.EqualError(t, pkg.Interrupted(errFirst, func(error) bool { return true }), "store: the attempt was interrupted: first")
	require.NoError(t, pkg.Interrupted(errFirst, func(error) bool { return false }))
	require.ErrorIs(t, sqltx.ErrEscaped, stores.ErrTxEnded)
	require.ErrorIs(t, sqltx.ErrEscaped, stores.ErrTxEscaped)
}

type key struct{}

type attempt struct{ sqltx.Entry }

func (*attempt) Native() string { return "the transaction" }

func TestAHandlerHasTheTransactionOfItsMessage(t *testing.T) {
	t.Parallel()
	h := sqltx.Handler(key{}, func(ctx context.Context, tx string, _ *message.Message) error {
		same, ok := sqltx.FromContext[string](ctx, key{})
		require.True(t, ok)
		require.Equal(t, tx, same)
		return errFirst
	})
	msg := message.NewMessage("", nil)
	require.ErrorIs(t, h(msg), stores.ErrNoTx)
	_, ok := sqltx.FromContext[string](msg.Context(), key{})
	require.False(t, ok)

	a := &attempt{}
	msg.SetContext(context.WithValue(context.Background(), key{}, a))
	require.ErrorIs(t, h(msg), errFirst)
	require.ErrorIs(t, a.Doomed(), stores.ErrFailureHidden)
	require.ErrorIs(t, h(msg), stores.ErrReentered)
	require.ErrorIs(t, a.Doomed(), stores.ErrReentered)
}

func TestAHandlerThatNeverReturnsDoomsItsAttempt(t *testing.T) {
	t.Parallel()
	var e sqltx.Entry
	require.NoError(t, e.Doomed(), "nobody has entered: the handler has no use for the typed one")
	require.NoError(t, e.Enter())
	require.ErrorIs(t, e.Doomed(), stores.ErrFailureHidden)
	e.Returned(nil)
	require.NoError(t, e.Doomed())
	e.Doom(errFirst)
	e.Doom(errLater)
	require.Equal(t, errFirst, e.Doomed())
}
