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

// commitLag is how long a transaction usually takes to commit after it has drawn its numbers.
// Outputs that commit later are found by the relay's sweeps.
const commitLag = 3 * time.Second

// outputsIn selects outputs to be read.
type outputsIn struct {
	span

	kind       byte
	partitions []int64 // nil: all
	bare       bool    // without the content
	eventual   bool    // eventually consistent, for half the price
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
	if in.above+1 >= below {
		return nil
	}
	var all cursors
	for _, p := range in.partitions {
		q := partitionQuery(in.kind, []byte{byte(p)}) //nolint:gosec // it is small
		q.TableName, q.Limit, q.ScanIndexForward, q.ConsistentRead = &s.contents, aws.Int32(listPage), aws.Bool(in.ascending), aws.Bool(!in.eventual)
		q.KeyConditionExpression = aws.String("pk = :pk AND sk BETWEEN :low AND :high")
		q.ExpressionAttributeValues[":low"], q.ExpressionAttributeValues[":high"] = bin(number8(in.above+1)), bin(number8(below)) // keys are longer than the number, so :high is exclusive
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

// find returns an output in one state, without its content, or nil if there is none.
func (s *Store) find(ctx context.Context, kind byte, number int64) (found item, err error) {
	in := outputsIn{span: span{above: number - 1, below: number + 1}, kind: kind, partitions: []int64{outputPartition(bucketOf(number))}, bare: true}
	err = s.outputsOf(ctx, in, func(i item) bool {
		found = i
		return false
	})
	return found, err
}

// keyOf returns the key of an item, or nil without one.
func keyOf(i item) item {
	if i == nil {
		return nil
	}
	return item{"pk": i["pk"], "sk": i["sk"]}
}

// parallel is the number of concurrent requests of one call.
const parallel = 8

// each calls f with 0 to n-1, some of them concurrently, and joins the errors.
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

// Pending implements stores.Outbox with a consistent query of each partition that has one of the
// buckets, and one more for each further page.
func (s *Store) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	if err := s.listing(ctx, q.Limit); err != nil {
		return stores.Pending{}, err
	}
	now := s.clock.now() // before the outputs are read
	in := outputsIn{kind: kindOutput, span: span{above: q.After, ascending: true}, partitions: []int64{}}
	for _, bucket := range q.Buckets {
		if p := outputPartition(bucket); !slices.Contains(in.partitions, p) {
			in.partitions = append(in.partitions, p)
		}
	}
	p := stores.Pending{Through: numberAt(now-(commitLag+hostMargin).Microseconds()) - 1}
	size, except := 0, make(map[int64]bool, len(q.ExceptNumbers))
	for _, number := range q.ExceptNumbers {
		except[number] = true
	}
	err := s.outputsOf(ctx, in, func(i item) bool {
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

// Settle implements stores.Outbox. It deletes published outputs 25 at a time, and moves kept ones
// and dead letters one by one.
func (s *Store) Settle(ctx context.Context, q stores.Settlement) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	now := s.clock.now()
	var published []item
	for i, number := range q.Published {
		var created time.Time
		if len(q.CreatedAt) > 0 {
			created = q.CreatedAt[i]
		}
		k, err := s.pendingKey(ctx, number, created)
		if err != nil {
			return err
		}
		if k != nil {
			published = append(published, k)
		}
	}
	settle := s.deletePublished
	if q.Keep {
		settle = func(ctx context.Context, published []item) error { return s.keepPublished(ctx, published, now) }
	}
	if err := settle(ctx, published); err != nil {
		return err
	}
	return each(len(q.Refused), func(i int) error { return s.refuse(ctx, q.Refused[i], now) })
}

// keepPublished moves published outputs to the history.
func (s *Store) keepPublished(ctx context.Context, published []item, now int64) error {
	return each(len(published), func(i int) error {
		return s.move(ctx, published[i], kindPublished, func(o item) {
			o["end"] = num(now)
			if expires := s.expiry(now); expires > 0 {
				o["ttl"] = num(expires)
			}
		})
	})
}

// pendingKey returns the key of a pending output, or nil if there is none. It searches only when
// the time is unknown.
func (s *Store) pendingKey(ctx context.Context, number int64, created time.Time) (item, error) {
	if created.IsZero() {
		i, err := s.find(ctx, kindOutput, number)
		return keyOf(i), err
	}
	return outputKey(kindOutput, number, created), nil
}

// refuse records that a destination refused an output.
func (s *Store) refuse(ctx context.Context, r stores.RefusedOutput, now int64) error {
	k, err := s.pendingKey(ctx, r.Number, r.CreatedAt)
	if err != nil || k == nil {
		return err
	}
	attempts, reason := num(int64(r.Attempts)), str(sqlstore.Text(r.Error, stores.MaxErrorBytes))
	if r.Failed {
		return s.move(ctx, k, kindFailed, func(o item) { o["att"], o["err"], o["end"] = attempts, reason, num(now) })
	}
	_, err = s.update(ctx, s.contents, k, "SET #att = :att, #err = :err", "attribute_exists(pk)", item{":att": attempts, ":err": reason})
	return s.refused(ctx, err, func(item) bool { return true })
}

// move puts an output into another state. It does nothing if the output is gone or was settled
// meanwhile.
func (s *Store) move(ctx context.Context, from item, to byte, change func(item)) error {
	o, err := s.getFrom(ctx, s.contents, from)
	if err != nil || len(o) == 0 {
		return err
	}
	change(o)
	moved := inState(to, from)
	o["pk"], o["sk"], o["own"] = moved["pk"], moved["sk"], bin(newOwn())
	leaves := []types.TransactWriteItem{s.leaving(from)}
	end, err := s.send(ctx, write{put: guard{}.put(s.contents, o), others: leaves})
	if conditionOf(err, leaves) != nil {
		end = declined
	}
	if err := s.outcome(ctx, end, err); !errors.Is(err, stores.ErrChanged) {
		return err
	}
	return nil
}

// leaving returns the deletion of an output, on condition that it exists.
func (s *Store) leaving(key item) types.TransactWriteItem {
	return deletion(s.contents, key, aws.String("attribute_exists(pk)"))
}

// deletePublished deletes published outputs.
func (s *Store) deletePublished(ctx context.Context, keys []item) error {
	const most = 25 // keys in one request
	for batch := range slices.Chunk(keys, most) {
		var gone []types.WriteRequest
		for _, k := range batch {
			gone = append(gone, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: k}})
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
