package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

var _ stores.Outbox = (*Store)(nil)

// commitLag is within which time of drawing its numbers a transaction usually commits. Outputs that are
// committed later are found when the relay sweeps.
const commitLag = 3 * time.Second

// outputsIn says which outputs are read.
type outputsIn struct {
	span

	kind       byte
	partitions []int64 // nil: all
	bare       bool    // without their content
	eventual   bool    // read with eventual consistency, for half the price
}

// outputsOf yields outputs in the order of their numbers, until yield returns false.
func (s *Store) outputsOf(ctx context.Context, in outputsIn, yield func(item) bool) error {
	if in.partitions == nil {
		for p := range int64(outputPartitions) {
			in.partitions = append(in.partitions, p)
		}
	}
	below := in.below
	if below == 0 {
		below = 1<<63 - 1
	}
	if in.above+1 > below-1 {
		return nil
	}
	var all cursors
	for _, p := range in.partitions {
		q := partitionQuery(in.kind, []byte{byte(p)}) //nolint:gosec // it is small
		q.TableName, q.Limit, q.ScanIndexForward, q.ConsistentRead = &s.contents, aws.Int32(listPage), aws.Bool(in.ascending), aws.Bool(!in.eventual)
		q.KeyConditionExpression = aws.String("pk = :pk AND sk BETWEEN :low AND :high")
		q.ExpressionAttributeValues[":low"], q.ExpressionAttributeValues[":high"] = bin(number8(in.above+1)), bin(number8(below-1))
		if in.bare {
			columns, names := bareNames()
			q.Select, q.ProjectionExpression, q.ExpressionAttributeNames = types.SelectSpecificAttributes, &columns, names
		}
		all = append(all, &cursor{query: q})
	}
	err := each(len(all), func(i int) error { return all[i].fill(ctx, s) })
	for err == nil {
		var i item
		if i, _, err = all.next(ctx, s, in.ascending); i == nil || !yield(i) {
			return err
		}
	}
	return err
}

// parallel is how many requests of one call run at a time.
const parallel = 8

// each calls f with 0 to n-1, some at a time, and returns the errors.
func each(n int, f func(i int) error) error {
	var (
		busy  sync.WaitGroup
		errs  = make([]error, n)
		slots = make(chan struct{}, parallel)
	)
	for i := range n {
		slots <- struct{}{}
		busy.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	busy.Wait()
	return errors.Join(errs...)
}

// Pending implements stores.Outbox: a consistent query of each partition that has one of the
// buckets, and more queries of those with more than one page.
func (s *Store) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	if err := s.listing(ctx, q.Limit); err != nil {
		return stores.Pending{}, err
	}
	now, err := s.clock.now() // before the outputs are read
	if err != nil {
		return stores.Pending{}, err
	}
	in := outputsIn{kind: kindOutput, span: span{above: q.After, ascending: true}, partitions: []int64{}}
	for _, bucket := range q.Buckets {
		if p := bucket / (stores.OutboxBuckets / outputPartitions); !slices.Contains(in.partitions, p) {
			in.partitions = append(in.partitions, p)
		}
	}
	p := stores.Pending{Through: numberAt(now-(commitLag+hostMargin).Microseconds()) - 1}
	size, except := 0, make(map[int64]bool, len(q.ExceptNumbers))
	for _, number := range q.ExceptNumbers {
		except[number] = true
	}
	err = s.outputsOf(ctx, in, func(i item) bool {
		number := integer(i["num"])
		if !slices.Contains(q.Buckets, bucketOf(number)) || except[number] || slices.Contains(q.ExceptDestinations, text(i["dst"])) {
			return true
		}
		size += int(integer(i["siz"]))
		if n := len(p.Outputs); n == q.Limit || n > 0 && size > q.Bytes {
			p.More, p.Through = true, min(p.Through, p.Outputs[n-1].Number)
			return false
		}
		p.Outputs = append(p.Outputs, outputOf(i))
		return true
	})
	if err != nil {
		return stores.Pending{}, err
	}
	return p, nil
}

// Settle implements stores.Outbox: published outputs are deleted 25 at a time. Those that are
// kept, and dead letters, are moved one by one.
func (s *Store) Settle(ctx context.Context, q stores.Settlement) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	now, err := s.clock.now()
	if err != nil {
		return err
	}
	var published []int64
	for i, number := range q.Published { // another one has another number
		if len(q.CreatedAt) == 0 || q.CreatedAt[i].Equal(createdAt(number)) {
			published = append(published, number)
		}
	}
	if q.Keep {
		err = each(len(published), func(i int) error {
			return s.move(ctx, published[i], kindPublished, func(o item) {
				o["end"] = num(now)
				if expires := s.expiry(now); expires > 0 {
					o["ttl"] = num(expires)
				}
			})
		})
	} else {
		err = s.deletePublished(ctx, published)
	}
	if err != nil {
		return err
	}
	return each(len(q.Refused), func(i int) error { return s.refuse(ctx, q.Refused[i], now) })
}

// refuse records that a destination has refused an output.
func (s *Store) refuse(ctx context.Context, r stores.RefusedOutput, now int64) error {
	if !r.CreatedAt.IsZero() && !r.CreatedAt.Equal(createdAt(r.Number)) {
		return nil
	}
	attempts, reason := num(int64(r.Attempts)), str(sqlstore.Text(r.Error, stores.MaxErrorBytes))
	if r.Failed {
		return s.move(ctx, r.Number, kindFailed, func(o item) { o["att"], o["err"], o["end"] = attempts, reason, num(now) })
	}
	_, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.contents, Key: outputKey(kindOutput, r.Number), UpdateExpression: aws.String("SET #att = :att, #err = :err"),
		ConditionExpression: aws.String("attribute_exists(pk)"), ExpressionAttributeNames: map[string]string{"#att": "att", "#err": "err"},
		ExpressionAttributeValues: item{":att": attempts, ":err": reason},
	})
	return s.refused(ctx, err, func(item) bool { return true })
}

// move puts a pending output into another state, if it is there.
func (s *Store) move(ctx context.Context, number int64, to byte, change func(item)) error {
	o, err := s.getFrom(ctx, s.contents, outputKey(kindOutput, number))
	if err != nil || len(o) == 0 {
		return err
	}
	err = s.guarded(ctx, 1, s.moving(o, to, number, change))
	if errors.Is(err, stores.ErrChanged) {
		return nil // it is gone
	}
	return err
}

// moving returns the operations that put an output into another state, first its guarded deletion.
func (s *Store) moving(o item, to byte, number int64, change func(item)) []types.TransactWriteItem {
	from := item{"pk": o["pk"], "sk": o["sk"]}
	change(o)
	moved := outputKey(to, number)
	o["pk"], o["sk"], o["num"] = moved["pk"], moved["sk"], num(number)
	return []types.TransactWriteItem{s.leaving(from), {Put: &types.Put{TableName: &s.contents, Item: o}}}
}

// leaving deletes an output if it is there.
func (s *Store) leaving(key item) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{TableName: &s.contents, Key: key, ConditionExpression: aws.String("attribute_exists(pk)")}}
}

// deletePublished deletes outputs that are published.
func (s *Store) deletePublished(ctx context.Context, numbers []int64) error {
	const most = 25 // of a request
	for batch := range slices.Chunk(numbers, most) {
		var gone []types.WriteRequest
		for _, number := range batch {
			gone = append(gone, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: outputKey(kindOutput, number)}})
		}
		for len(gone) > 0 {
			out, err := s.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{s.contents: gone}})
			if err != nil {
				return s.explain(ctx, err)
			}
			gone = out.UnprocessedItems[s.contents]
			if len(gone) > 0 && !pause.Sleep(ctx, pause.Jitter(tooMany)) {
				return fmt.Errorf("dynamodb: %w: %w", stores.ErrUnavailable, context.Cause(ctx))
			}
		}
	}
	return nil
}
