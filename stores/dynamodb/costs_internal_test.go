package dynamodb

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// meter adds up the capacity that requests consume.
type meter struct {
	mu            sync.Mutex
	reads, writes float64
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads, m.writes = 0, 0
}

// add makes every request say what it has consumed.
func (m *meter) add(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("meter", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (out middleware.InitializeOutput, metadata middleware.Metadata, err error) {
		const total = types.ReturnConsumedCapacityTotal
		switch p := in.Parameters.(type) {
		case *dynamodb.GetItemInput:
			p.ReturnConsumedCapacity = total
		case *dynamodb.PutItemInput:
			p.ReturnConsumedCapacity = total
		case *dynamodb.UpdateItemInput:
			p.ReturnConsumedCapacity = total
		case *dynamodb.TransactWriteItemsInput:
			p.ReturnConsumedCapacity = total
		case *dynamodb.QueryInput:
			p.ReturnConsumedCapacity = total
		case *dynamodb.BatchWriteItemInput:
			p.ReturnConsumedCapacity = total
		}
		out, metadata, err = next.HandleInitialize(ctx, in)
		m.mu.Lock()
		defer m.mu.Unlock()
		switch result := out.Result.(type) {
		case *dynamodb.GetItemOutput:
			m.reads += units(result.ConsumedCapacity)
		case *dynamodb.QueryOutput:
			m.reads += units(result.ConsumedCapacity)
		case *dynamodb.PutItemOutput:
			m.writes += units(result.ConsumedCapacity)
		case *dynamodb.UpdateItemOutput:
			m.writes += units(result.ConsumedCapacity)
		case *dynamodb.TransactWriteItemsOutput:
			for _, c := range result.ConsumedCapacity {
				m.writes += units(&c)
			}
		case *dynamodb.BatchWriteItemOutput:
			for _, c := range result.ConsumedCapacity {
				m.writes += units(&c)
			}
		}
		return out, metadata, err
	}), middleware.After)
}

func units(c *types.ConsumedCapacity) float64 {
	if c == nil || c.CapacityUnits == nil {
		return 0
	}
	return *c.CapacityUnits
}

// What each call costs, in requests and units, as docs/dynamodb.md says.
func TestCosts(t *testing.T) {
	m := &meter{}
	b := newBench(t, func(c *Config) { c.AWS.APIOptions = append(c.AWS.APIOptions, m.add) })
	_, err := b.draw(t.Context()) // a block of numbers
	require.NoError(t, err)
	tables := []string{b.mirror.effects + "1", b.mirror.effects + "2", b.mirror.effects + "3"} // of one Local counts the first write
	for _, table := range tables {
		createTable(t, b.client, table, "id")
		t.Cleanup(func() {
			_, _ = b.client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
		})
	}
	measure := func(name string, requests int, reads, writes float64, do func()) {
		t.Helper()
		b.faults.requests()
		m.reset()
		do()
		n := 0
		counts := b.faults.requests()
		for _, one := range counts {
			n += one
		}
		t.Logf("%s: %d requests, %g read units, %g write units", name, n, m.reads, m.writes)
		require.Equal(t, fmt.Sprint(requests, reads, writes), fmt.Sprint(n, m.reads, m.writes), "%s: %v", name, counts)
	}
	for writes := range 4 {
		c := newClaim()
		inbox := 2.
		if writes == 0 {
			inbox = 1 // it is no transaction
		}
		measure(fmt.Sprintf("a first delivery with %d writes", writes), 2, 1, inbox+2*float64(writes), func() {
			a := b.win(t, c)
			for _, table := range tables[:writes] {
				require.NoError(t, a.tx.Put(t.Context(), types.Put{TableName: &table, Item: item{"id": str("costs")}}))
			}
			require.NoError(t, a.Commit(t.Context()))
		})
		measure("a duplicate", 1, 1, 0, func() {
			_, v, err := b.Begin(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, stores.Duplicate, v.Outcome)
		})
	}
	measure("an attempt that was rolled back", 1, 1, 0, func() { require.NoError(t, b.win(t, newClaim()).Rollback(t.Context())) })

	c := newClaim()
	f := failureOf(c)
	var version int64
	record := func() {
		t.Helper()
		version, err = b.Record(t.Context(), f)
		require.NoError(t, err)
	}
	measure("a first failure that is parked", 2, 0, 1+3, record)
	f.Version, f.Content, f.Attempts = version, nil, 2
	measure("a second failure", 2, 1, 3, record)
	query := stores.DueQuery{Consumer: consumer, Limit: 1, Reserve: time.Minute}
	due, err := b.Due(t.Context(), query)
	require.NoError(t, err)
	require.Len(t, due, 1)
	measure("a look for what is due that finds nothing", partitions, 0, 0, func() {
		due, err := b.Due(t.Context(), query)
		require.NoError(t, err)
		require.Empty(t, due)
	})
}

func TestWhatALeaseCosts(t *testing.T) {
	m := &meter{}
	b := newBench(t, func(c *Config) { c.AWS.APIOptions = append(c.AWS.APIOptions, m.add) })
	_, err := b.draw(t.Context())
	require.NoError(t, err)
	c := newClaim()
	f := stores.Failure{
		Key: c.Key, Status: stores.StatusPending, Placement: stores.PlacementRedelivered, Attempts: 1, DueIn: time.Minute, Start: true, Holder: "holder",
	}
	b.faults.requests()
	m.reset()
	version, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	require.NoError(t, b.Extend(t.Context(), stores.HeldLease{Key: c.Key, Version: version, Holder: "holder"}, time.Minute))
	c.Take = version
	require.NoError(t, b.win(t, c).Commit(t.Context()))
	require.Equal(t, map[string]int{"PutItem": 2, "UpdateItem": 1}, b.faults.requests())
	require.Equal(t, "0 5", fmt.Sprint(m.reads, m.writes), "each with its entry in the list but the heartbeat")
}

// What an output costs, and a relay. Of a transaction Local counts one write in each table.
func TestWhatOutputsCost(t *testing.T) {
	m := &meter{}
	b := newBench(t, func(c *Config) { c.AWS.APIOptions = append(c.AWS.APIOptions, m.add) })
	require.NoError(t, b.ready(t.Context()))
	measure := func(name, want string, do func()) {
		t.Helper()
		b.faults.requests()
		m.reset()
		do()
		require.Equal(t, want, fmt.Sprint(b.faults.requests(), m.reads, m.writes), name)
	}
	say := func() {
		a := b.win(t, newClaim())
		require.NoError(t, a.Emit([]stores.Output{{ID: "output", Topic: "t", Payload: make([]byte, 500)}}))
		require.NoError(t, a.Commit(t.Context()))
	}
	units := make([]int64, stores.OutboxBuckets)
	for i := range units {
		units[i] = int64(i)
	}
	pending := func() (found []stores.PendingOutput) {
		p, err := b.Pending(t.Context(), stores.PendingQuery{Buckets: units, Limit: 10, Bytes: 1 << 20})
		require.NoError(t, err)
		return p.Outputs
	}
	lease := stores.LeaseRequest{Name: "outbox", Owner: "relay", Units: units, Limit: len(units), TTL: time.Minute}
	measure("leases of all buckets, taken", "map[GetItem:1 PutItem:1] 1 2", func() {
		_, err := b.Lease(t.Context(), lease)
		require.NoError(t, err)
	})
	measure("a slot of numbers, each minute", "map[UpdateItem:1] 0 1", func() {
		_, err := b.drawOutputs(t.Context(), b.clock.now(), 1)
		require.NoError(t, err)
	})
	measure("a first delivery that says something", "map[GetItem:1 TransactWriteItems:1] 1 4", say)
	measure("a relay that finds one", "map[Query:8] 1 0", func() { require.Len(t, pending(), 1) })
	settle := func(s stores.Settlement) func() {
		return func() { require.NoError(t, b.Settle(t.Context(), s)) }
	}
	published := func(keep bool) stores.Settlement {
		o := pending()[0]
		return stores.Settlement{Published: []int64{o.Number}, CreatedAt: []time.Time{o.CreatedAt}, Keep: keep}
	}
	measure("published", "map[BatchWriteItem:1] 0 1", settle(published(false)))
	measure("a relay that finds nothing", "map[Query:8] 0 0", func() { require.Empty(t, pending()) })
	say()
	o := pending()[0]
	measure("refused", "map[UpdateItem:1] 0 1", settle(stores.Settlement{Refused: []stores.RefusedOutput{{Number: o.Number, CreatedAt: o.CreatedAt, Attempts: 1}}}))
	measure("published and kept", "map[GetItem:1 TransactWriteItems:1] 1 2", settle(published(true)))
}
