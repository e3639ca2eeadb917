package dynamodb

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/storetest"
)

const transact = "TransactWriteItems"

// effect writes one effect in an attempt.
func effect(t *testing.T, a *attempt, name string) {
	t.Helper()
	require.NoError(t, writeEffect(a.Context(t.Context()), storetest.Effect{Key: name, Label: "first", Run: 1}))
}

// Whatever becomes of the answers, what is said of the transaction is true, and its effect is
// there once if it is committed.
func TestWhatTheServiceAnswersIsJudged(t *testing.T) {
	b := newBench(t)
	many := func(f fault) []fault { return slices.Repeat([]fault{f}, maxTries) }
	for name, test := range map[string]struct {
		faults      []fault
		want        error // nil: committed
		interrupted bool
		refused     bool // for good
	}{
		"all is well":                              {},
		"the answer is lost":                       {faults: []fault{loseAnswer}},
		"the answer is lost twice":                 {faults: []fault{loseAnswer, loseAnswer}},
		"the request is lost":                      {faults: []fault{lostBefore}},
		"a conflict":                               {faults: []fault{conflicts, conflicts}},
		"conflicts without end":                    {faults: many(conflicts), want: stores.ErrNotCommitted, interrupted: true},
		"throttled":                                {faults: []fault{throttles, throttles, throttles}},
		"throttled without end":                    {faults: many(throttles), want: stores.ErrNotCommitted, interrupted: true},
		"in progress":                              {faults: []fault{loseAnswer, inProgress, inProgress}},
		"in progress without end":                  {faults: append([]fault{loseAnswer}, many(inProgress)...)},
		"an error of the service":                  {faults: []fault{says(500, exception("InternalServerError"))}},
		"an error of the service after the commit": {faults: []fault{doesAndSays(500, exception("InternalServerError"))}},
		"unavailable after the commit":             {faults: []fault{doesAndSays(503, "")}},
		"another content under the token":          {faults: append([]fault{loseAnswer}, many(says(400, exception("IdempotentParameterMismatchException")))...)},
		"lost, and then throttled without end":     {faults: append([]fault{lostBefore}, many(throttles)...), want: stores.ErrCommitUnknown},
		"lost after the commit, then throttled":    {faults: append([]fault{loseAnswer}, many(throttles)...)},
		"the handler's item is in use":             {faults: []fault{says(400, canceled("None", "TransactionConflict"))}},
		"too many bytes":                           {faults: []fault{says(413, "")}, want: stores.ErrNotCommitted, refused: true},
		"no right":                                 {faults: []fault{says(400, exception("AccessDeniedException"))}, want: stores.ErrNotCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaim()
			a := b.win(t, c)
			effect(t, a, name)
			b.then(transact, test.faults...)
			err := a.Commit(t.Context())
			b.then(transact)
			if test.want != nil {
				require.ErrorIs(t, err, test.want)
				require.Equal(t, test.interrupted, a.Interrupted() != nil)
				require.Equal(t, test.refused, a.Refuses(err))
				require.Zero(t, b.effects(t, name))
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, b.effects(t, name))
			_, v, err := b.Begin(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, stores.Duplicate, v.Outcome)
		})
	}
}

// lostBefore loses the request itself, which the client cannot know.
func lostBefore(*faults, *http.Request) (*http.Response, error) { return nil, errReset }

// A transaction that is still under way when its outcome is asked for is kept from committing,
// or found to be committed; never neither.
func TestATransactionThatArrivesLate(t *testing.T) {
	b := newBench(t)
	unknown := func(t *testing.T, c stores.Claim, name string) {
		t.Helper()
		a := b.win(t, c)
		effect(t, a, name)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		b.then(transact, slices.Repeat([]fault{delay}, 20)...)
		require.ErrorIs(t, a.Commit(ctx), stores.ErrCommitUnknown)
		b.then(transact)
	}
	t.Run("after it was closed", func(t *testing.T) {
		c := newClaim()
		unknown(t, c, "closed")
		completed, err := b.Resolve(t.Context(), c.Key)
		require.NoError(t, err)
		require.False(t, completed)
		for _, status := range b.arrive(t) {
			require.Equal(t, http.StatusBadRequest, status)
		}
		require.Zero(t, b.effects(t, "closed"))
		a := b.win(t, c)
		effect(t, a, "closed")
		require.NoError(t, a.Commit(t.Context()))
		require.Equal(t, 1, b.effects(t, "closed"))
	})
	t.Run("before it was closed", func(t *testing.T) {
		c := newClaim()
		unknown(t, c, "before")
		require.Contains(t, b.arrive(t), http.StatusOK)
		completed, err := b.Resolve(t.Context(), c.Key)
		require.NoError(t, err)
		require.True(t, completed)
		require.Equal(t, 1, b.effects(t, "before"))
	})
	t.Run("after its failure was recorded", func(t *testing.T) {
		c := newClaim()
		unknown(t, c, "recorded")
		_, err := b.Record(t.Context(), failureOf(c))
		require.NoError(t, err)
		b.arrive(t)
		require.Zero(t, b.effects(t, "recorded"))
	})
	t.Run("beside another attempt", func(t *testing.T) {
		c := newClaim()
		unknown(t, c, "beside")
		a := b.win(t, c)
		effect(t, a, "beside")
		require.Contains(t, b.arrive(t), http.StatusOK)
		require.ErrorIs(t, a.Commit(t.Context()), stores.ErrNotCommitted)
		require.Error(t, a.Interrupted())
		require.Equal(t, 1, b.effects(t, "beside"))
	})
	t.Run("of a message that was taken over", func(t *testing.T) {
		c := newClaim()
		version, err := b.Record(t.Context(), failureOf(c))
		require.NoError(t, err)
		c.Take = version
		unknown(t, c, "taken over")
		completed, err := b.Resolve(t.Context(), c.Key)
		require.NoError(t, err)
		require.False(t, completed)
		b.arrive(t)
		require.Zero(t, b.effects(t, "taken over"))
		a := b.win(t, c) // the version is as it was
		require.NoError(t, a.Commit(t.Context()))
	})
}

func failureOf(c stores.Claim) stores.Failure {
	return stores.Failure{
		Key: c.Key, Fingerprint: c.Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementParked, Attempts: 1,
		Class: stores.ClassTransient, Error: "boom", Content: &stores.Content{State: stores.ContentKept, UUID: "1", Payload: []byte("payload")},
	}
}

// An answer that was lost is no refusal: the SDK repeats the request, which its own item refuses.
func TestRepeatedRequestsKnowThemselves(t *testing.T) {
	b := newBench(t)
	c := newClaim()
	b.then("PutItem", nil, loseAnswer) // after the content
	version, err := b.Record(t.Context(), failureOf(c))
	require.NoError(t, err)

	f := failureOf(c)
	f.Version, f.Content, f.Attempts = version, nil, 2
	b.then("PutItem", loseAnswer)
	version, err = b.Record(t.Context(), f)
	require.NoError(t, err)

	f.Version, f.Start, f.Holder, f.DueIn = version, true, "holder", time.Minute
	version, err = b.Record(t.Context(), f)
	require.NoError(t, err)
	lease := stores.HeldLease{Key: c.Key, Version: version, Holder: "holder"}
	b.then("UpdateItem", loseAnswer)
	require.NoError(t, b.Extend(t.Context(), lease, time.Minute))

	b.then("PutItem", loseAnswer) // a completion without writes is no transaction
	c.Take = version
	require.NoError(t, b.win(t, c).Commit(t.Context()))
	require.ErrorIs(t, b.Extend(t.Context(), lease, time.Minute), stores.ErrChanged)
}

// A handler's condition is told apart from the inbox's own, and is contention.
func TestConditionsOfHandlers(t *testing.T) {
	b := newBench(t)
	check := func(a *attempt, id string) error {
		return a.tx.Check(t.Context(), types.ConditionCheck{TableName: &b.mirror.effects, Key: item{"id": str(id)}, ConditionExpression: aws.String("attribute_exists(id)")})
	}
	a := b.win(t, newClaim())
	effect(t, a, "condition")
	require.NoError(t, check(a, "missing"))
	err := a.Commit(t.Context())
	require.ErrorIs(t, err, stores.ErrNotCommitted)
	require.ErrorIs(t, err, stores.ErrTxContended)
	condition, ok := errors.AsType[*ConditionError](err)
	require.True(t, ok)
	require.Equal(t, b.mirror.effects, condition.Table)
	require.NoError(t, a.Interrupted(), "it is the handler's")
	require.Zero(t, b.effects(t, "condition"))

	c := newClaim() // both conditions fail: the inbox's counts
	first, second := b.win(t, c), newAttempt(b.Store, c, nil)
	require.NoError(t, check(second, "missing"))
	require.NoError(t, first.Commit(t.Context()))
	err = second.Commit(t.Context())
	require.ErrorIs(t, err, stores.ErrNotCommitted)
	require.NotErrorIs(t, err, stores.ErrTxContended)
	require.Error(t, second.Interrupted())
}

func TestTheBuilderRefuses(t *testing.T) {
	b := newBench(t)
	ctx, table := t.Context(), b.mirror.effects
	key := func(id string) item { return item{"id": str(id)} }
	update := types.Update{TableName: &table, Key: key("a"), UpdateExpression: aws.String("SET n = :n"), ExpressionAttributeValues: item{":n": num(1)}}
	check := types.ConditionCheck{TableName: aws.String("arn:aws:dynamodb:eu-central-1:000000000000:table/" + table), Key: key("a"), ConditionExpression: aws.String("attribute_exists(id)")}
	for name, second := range map[string]func(*Tx) error{
		"update": func(tx *Tx) error { return tx.Update(ctx, update) },
		"delete": func(tx *Tx) error { return tx.Delete(ctx, types.Delete{TableName: &table, Key: key("a")}) },
		"put": func(tx *Tx) error {
			return tx.Put(ctx, types.Put{TableName: &table, Item: item{"id": str("a"), "n": num(1)}})
		},
		"condition by ARN": func(tx *Tx) error { return tx.Check(ctx, check) },
	} {
		t.Run("a second operation on an item: "+name, func(t *testing.T) {
			a := b.win(t, newClaim())
			require.NoError(t, a.tx.Update(ctx, update))
			err := second(a.tx)
			require.ErrorIs(t, err, ErrSameItem)
			require.ErrorContains(t, err, `"a`)
			require.True(t, a.Refuses(err))
			err = a.Commit(ctx)
			require.ErrorIs(t, err, stores.ErrTxAborted, "the handler has hidden it")
			require.ErrorIs(t, err, ErrSameItem)
		})
	}
	t.Run("others are taken", func(t *testing.T) {
		a := b.win(t, newClaim())
		require.NoError(t, a.tx.Update(ctx, update))
		require.NoError(t, a.tx.Put(ctx, types.Put{TableName: &table, Item: key("b")}))
		require.NoError(t, a.tx.Delete(ctx, types.Delete{TableName: &table, Key: key("c")}))
		require.NoError(t, a.Commit(ctx))
		require.ErrorIs(t, a.tx.Update(ctx, update), stores.ErrTxClosed)
	})
	t.Run("more than fit", func(t *testing.T) {
		a := b.win(t, newClaim())
		for range MaxOperations {
			effect(t, a, "many")
		}
		err := writeEffect(a.Context(ctx), storetest.Effect{Key: "many"})
		require.ErrorIs(t, err, ErrTooMany)
		require.NoError(t, a.Rollback(ctx))
		a = b.win(t, newClaim())
		for range MaxOperations {
			effect(t, a, "many")
		}
		require.NoError(t, a.Commit(ctx))
		require.Equal(t, MaxOperations, b.effects(t, "many"))
	})
	t.Run("more bytes than fit", func(t *testing.T) {
		a := b.win(t, newClaim())
		for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"} {
			require.NoError(t, a.tx.Put(ctx, types.Put{TableName: &table, Item: item{"id": str(id), "b": bin(make([]byte, 399<<10))}}))
		}
		err := a.Commit(ctx)
		require.ErrorIs(t, err, stores.ErrNotCommitted)
		require.True(t, a.Refuses(err), err)
		require.NoError(t, a.Interrupted())
	})
	t.Run("millpond's tables", func(t *testing.T) {
		a := b.win(t, newClaim())
		require.ErrorIs(t, a.tx.Delete(ctx, types.Delete{TableName: &b.table, Key: key("a")}), ErrOwnTable)
		require.NoError(t, a.Rollback(ctx))
	})
	t.Run("a table that is not there", func(t *testing.T) {
		a := b.win(t, newClaim())
		require.NoError(t, a.tx.Delete(ctx, types.Delete{TableName: aws.String("missing"), Key: key("a")}))
		err := a.Commit(ctx)
		require.ErrorIs(t, err, stores.ErrNotCommitted)
		require.NotErrorIs(t, err, stores.ErrNotMigrated)
	})
}
