package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func outputOfSize(id string, n int) stores.Output {
	return stores.Output{ID: id, Topic: "t", Payload: make([]byte, n)}
}

// pending returns the ids of outputs that wait.
func (b *bench) pending(t *testing.T) (ids []string) {
	t.Helper()
	rows, err := b.Outputs(t.Context(), stores.OutputQuery{OutputFilter: stores.OutputFilter{State: stores.OutputPending}, Limit: 1000})
	require.NoError(t, err)
	for _, o := range rows {
		ids = append(ids, o.ID)
	}
	return ids
}

// What a transaction cannot take is refused, and has one outcome.
func TestOutputsThatDoNotFit(t *testing.T) {
	b := newBench(t)
	a := b.win(t, newClaim())
	for i := range MaxOperations - 2 {
		effect(t, a, fmt.Sprint("fits ", i))
	}
	require.NoError(t, a.Emit([]stores.Output{outputOfSize("first", 1)}))
	err := a.Emit([]stores.Output{outputOfSize("second", 1), outputOfSize("third", 1)})
	require.ErrorIs(t, err, stores.ErrTooLarge)
	require.ErrorIs(t, err, ErrTooMany)
	require.NoError(t, a.Emit([]stores.Output{outputOfSize("second", 1)}))
	require.NoError(t, a.Commit(t.Context()))
	require.Equal(t, []string{"second", "first"}, b.pending(t))
	require.ErrorIs(t, a.Emit([]stores.Output{outputOfSize("late", 1)}), stores.ErrTxClosed)

	a = b.win(t, newClaim())
	require.NoError(t, a.Emit([]stores.Output{outputOfSize("one", 1)}))
	for i := range MaxOperations - 1 {
		effect(t, a, fmt.Sprint("fills ", i))
	}
	require.ErrorIs(t, writeOne(a, "one more"), ErrTooMany)
	require.ErrorIs(t, a.Commit(t.Context()), stores.ErrNotCommitted)

	var large []stores.Output
	for i := range 11 {
		large = append(large, outputOfSize(fmt.Sprint("large ", i), maxPart-100))
	}
	a = b.win(t, newClaim())
	require.NoError(t, a.Emit(large))
	require.NoError(t, a.Commit(t.Context()))
	a = b.win(t, newClaim())
	require.ErrorIs(t, a.Emit(append(large, outputOfSize("large 11", maxPart-100), outputOfSize("large 12", maxPart-100))), stores.ErrTooLarge)
	require.ErrorIs(t, a.Emit([]stores.Output{outputOfSize("larger", maxPart)}), stores.ErrTooLarge)
	require.NoError(t, a.Rollback(t.Context()))
	require.Len(t, b.pending(t), 13)
}

func writeOne(a *attempt, name string) error {
	return a.tx.Put(context.Background(), types.Put{TableName: &name, Item: item{"id": str(name)}})
}

// What is said is said once, and only by what is committed, whatever becomes of requests.
func TestOutputsWhoseTransactionsAreLost(t *testing.T) {
	b := newBench(t)
	say := func(id string) *attempt {
		a := b.win(t, newClaim())
		require.NoError(t, a.Emit([]stores.Output{outputOfSize(id, 1)}))
		return a
	}
	for i, faults := range [][]fault{{loseAnswer}, {conflicts, throttles}, {inProgress, loseAnswer}, {lostBefore}} {
		b.then(transact, faults...)
		require.NoError(t, say(fmt.Sprint("said ", i)).Commit(t.Context()))
	}
	require.Len(t, b.pending(t), 4)

	late := say("late")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	b.then(transact, delay, delay, delay, delay, delay, delay, delay, delay)
	require.ErrorIs(t, late.Commit(ctx), stores.ErrCommitUnknown)
	b.then(transact)
	completed, err := b.Resolve(t.Context(), late.claim.Key)
	require.NoError(t, err)
	require.False(t, completed)
	b.arrive(t)
	require.Len(t, b.pending(t), 4, "what was closed says nothing")

	all, err := b.Outputs(t.Context(), stores.OutputQuery{OutputFilter: stores.OutputFilter{State: stores.OutputPending}, Limit: 10})
	require.NoError(t, err)
	b.then(transact, loseAnswer, conflicts)
	require.ErrorIs(t, b.Settle(t.Context(), stores.Settlement{Published: []int64{all[0].Number}, Keep: true}), stores.ErrUnavailable, "a conflict is tried again by the relay")
	b.then("BatchWriteItem", loseAnswer, throttles)
	for range 2 {
		require.NoError(t, b.Settle(t.Context(), stores.Settlement{Published: []int64{all[0].Number, all[1].Number}, Keep: true}))
		require.NoError(t, b.Settle(t.Context(), stores.Settlement{Published: []int64{all[2].Number}}))
	}
	require.Equal(t, []string{all[3].ID}, b.pending(t))
	kept, _, err := b.MatchingOutputs(t.Context(), stores.OutputFilter{State: stores.OutputPublished}, 10)
	require.NoError(t, err)
	require.Equal(t, 2, kept)
}

// Two processes may draw one number: nothing is overwritten.
func TestANumberThatAnotherOutputHas(t *testing.T) {
	b := newBench(t)
	taken := func() int64 {
		b.outputs.last = max(b.outputs.last, numberAt(time.Now().UnixMicro())) + 1<<40 // what is drawn next follows it
		i := outputKey(kindOutput, b.outputs.last+1)
		i["num"], i["mid"] = num(b.outputs.last+1), bin([]byte("another's"))
		_, err := b.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.contents, Item: i})
		require.NoError(t, err)
		return b.outputs.last + 1
	}
	number := taken()
	c := newClaim()
	a := b.win(t, c)
	effect(t, a, "numbered")
	require.NoError(t, a.Emit([]stores.Output{outputOfSize("own", 1)}))
	require.ErrorIs(t, a.Commit(t.Context()), stores.ErrNotCommitted)
	require.Error(t, a.Interrupted(), "it is made again, and not counted")
	a = b.win(t, c)
	effect(t, a, "numbered")
	require.NoError(t, a.Emit([]stores.Output{outputOfSize("own", 1)}))
	require.NoError(t, a.Commit(t.Context()))
	require.Equal(t, 1, b.effects(t, "numbered"))
	o, err := b.Output(t.Context(), number)
	require.NoError(t, err)
	require.Equal(t, "another's", o.ID)

	taken()
	require.NoError(t, b.Transact(t.Context(), func(tx *Tx) error {
		return NewPublisher(tx, stores.PublisherConfig{}).Publish("t", message.NewMessage("a producer's", nil))
	}))
	require.Len(t, b.pending(t), 4)
}

// A program's own transaction is one, too.
func TestTransact(t *testing.T) {
	b := newBench(t)
	publish := func(tx *Tx, id string) error {
		return NewPublisher(tx, stores.PublisherConfig{}).Publish("t", message.NewMessage(id, nil))
	}
	undone := errors.New("undone")
	require.ErrorIs(t, b.Transact(t.Context(), func(tx *Tx) error { return errors.Join(publish(tx, "undone"), undone) }), undone)
	require.NoError(t, b.Transact(t.Context(), func(*Tx) error { return nil }))
	err := b.Transact(t.Context(), func(tx *Tx) error {
		absent := "attribute_exists(id)"
		return errors.Join(publish(tx, "conditional"), tx.Check(t.Context(), types.ConditionCheck{TableName: &b.mirror.effects, Key: item{"id": str("none")}, ConditionExpression: &absent}))
	})
	condition, ok := errors.AsType[*ConditionError](err)
	require.True(t, ok, err)
	require.Equal(t, b.mirror.effects, condition.Table)
	require.ErrorIs(t, b.Transact(t.Context(), func(tx *Tx) error {
		_ = tx.Put(t.Context(), types.Put{TableName: &b.table}) // hidden
		return publish(tx, "hidden")
	}), ErrOwnTable)
	require.NoError(t, b.Transact(t.Context(), func(tx *Tx) error { return publish(tx, "said") }))
	require.Equal(t, []string{"said"}, b.pending(t))
}

// What is in the history for longer than the retention is deleted, and no copy of it is.
func TestHistoryEnds(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Retention = 30 * 24 * time.Hour })
	for range 2 {
		a := b.win(t, newClaim())
		require.NoError(t, a.Emit([]stores.Output{outputOfSize("said", 1)}))
		require.NoError(t, a.Commit(t.Context()))
	}
	all, err := b.Outputs(t.Context(), stores.OutputQuery{OutputFilter: stores.OutputFilter{State: stores.OutputPending}, Limit: 10})
	require.NoError(t, err)
	require.NoError(t, b.Settle(t.Context(), stores.Settlement{
		Published: []int64{all[0].Number}, Keep: true, Refused: []stores.RefusedOutput{{Number: all[1].Number, Attempts: 1, Failed: true}},
	}))
	replayed, err := b.ChangeOutputs(t.Context(), stores.OutputChange{Verb: stores.VerbReplayOutput, Filter: stores.OutputFilter{State: stores.OutputPublished}, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 1, replayed.Changed)
	ends := make(map[byte][]int64)
	_, err = b.mirror.scan(t.Context(), b.contents, func(i item) error {
		kind := blob(i["pk"])[0]
		ends[kind] = append(ends[kind], integer(i["ttl"]))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []int64{0}, ends[kindOutput], "the copy")
	require.Equal(t, []int64{0}, ends[kindFailed])
	require.Len(t, ends[kindPublished], 1)
	require.WithinDuration(t, time.Now().Add(30*24*time.Hour), time.Unix(ends[kindPublished][0], 0), time.Minute)
	is, err := b.client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &b.contents})
	require.NoError(t, err)
	require.Equal(t, "ttl", *is.TimeToLiveDescription.AttributeName)
}
