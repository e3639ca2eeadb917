package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware/outbox"
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
	require.NoError(t, b.Settle(t.Context(), stores.Settlement{Published: []int64{all[0].Number}, Keep: true}))
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

// More than 2,048 processes may draw one number: neither output is lost, nor taken for the other.
func TestANumberThatAnotherOutputHas(t *testing.T) {
	b := newBench(t)
	number := numberAt(time.Now().UnixMicro()) + 1<<40
	say := func(id string) {
		t.Helper()
		b.outputs.last, b.outputs.slot, b.outputs.ends = number-1, 0, 1<<62 // what is drawn next follows it
		a := b.win(t, newClaim())
		require.NoError(t, a.Emit([]stores.Output{outputOfSize(id, 1)}))
		require.NoError(t, a.Commit(t.Context()))
	}
	waiting := func() stores.PendingOutput {
		t.Helper()
		var all []int64
		for bucket := range int64(stores.OutboxBuckets) {
			all = append(all, bucket)
		}
		p, err := b.Pending(t.Context(), stores.PendingQuery{Buckets: all, Limit: 10, Bytes: 1 << 20})
		require.NoError(t, err)
		require.NotEmpty(t, p.Outputs)
		require.Equal(t, number, p.Outputs[0].Number)
		return p.Outputs[0]
	}
	say("one")
	for i, keep := range []bool{false, true} {
		o := waiting()
		settled := stores.Settlement{Published: []int64{number}, CreatedAt: []time.Time{o.CreatedAt}, Keep: keep}
		refused := stores.Settlement{Refused: []stores.RefusedOutput{{Number: number, CreatedAt: o.CreatedAt, Attempts: 1, Failed: true}}}
		require.NoError(t, b.Settle(t.Context(), settled))
		next := fmt.Sprint("another ", i)
		say(next)
		require.NoError(t, b.Settle(t.Context(), settled)) // again, as the answer was lost, or by a relay that was paused
		require.NoError(t, b.Settle(t.Context(), refused))
		require.Equal(t, []string{next}, b.pending(t))
	}

	say("third")
	require.ElementsMatch(t, []string{"another 1", "third"}, b.pending(t))
	published := &collector{ids: make(map[string]int)}
	relay, err := outbox.New(b.Store, outbox.Config{Publishers: map[string]message.Publisher{"": published}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var relaying sync.WaitGroup
	relaying.Go(func() { _ = relay.Run(ctx) })
	require.Eventually(t, func() bool { return len(b.pending(t)) == 0 }, time.Minute, 50*time.Millisecond)
	stop()
	relaying.Wait()
	require.Equal(t, map[string]int{"another 1": 1, "third": 1}, published.ids)
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
