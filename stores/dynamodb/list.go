package dynamodb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// listed is a row of a list, as the table has it.
type listed struct {
	key      item
	consumer stores.Consumer
	*row
}

// span selects rows by number; 0 is no bound.
type span struct {
	above, below int64 // both exclusive
	ascending    bool
}

// after returns the span of a batch of changes. upTo is inclusive; 0 is no bound.
func after(number, upTo int64) span {
	in := span{above: number, ascending: true}
	if upTo > 0 {
		in.below = upTo + 1
	}
	return in
}

// cursor reads one partition in order.
type cursor struct {
	query    *dynamodb.QueryInput
	consumer stores.Consumer
	buffer   []item
	over     bool
}

const listPage = 100 // the most that one BatchGetItem takes

// fill reads the next page if the current one is used up.
func (c *cursor) fill(ctx context.Context, s *Store) error {
	for len(c.buffer) == 0 && !c.over {
		out, err := s.client.Query(ctx, c.query)
		if err != nil {
			return s.explain(ctx, err)
		}
		c.buffer, c.query.ExclusiveStartKey = out.Items, out.LastEvaluatedKey
		c.over = len(out.LastEvaluatedKey) == 0
	}
	return nil
}

// cursors are read together, in the order of their items' numbers.
type cursors []*cursor

// next returns the next item and its cursor, or nil at the end.
func (all cursors) next(ctx context.Context, s *Store, ascending bool) (item, *cursor, error) {
	var first *cursor
	for _, c := range all {
		if err := c.fill(ctx, s); err != nil {
			return nil, nil, err
		}
		if len(c.buffer) > 0 && (first == nil || (integer(c.buffer[0]["num"]) < integer(first.buffer[0]["num"])) == ascending) {
			first = c
		}
	}
	if first == nil {
		return nil, nil, nil
	}
	i := first.buffer[0]
	first.buffer = first.buffer[1:]
	return i, first, nil
}

// listings returns the cursors of some consumers; prefix begins the names of their partitions.
func (s *Store) listings(consumers []stores.Consumer, prefix string, in span) (all cursors) {
	for _, c := range consumers {
		for p := range partitions {
			q := &dynamodb.QueryInput{
				TableName: &s.table, IndexName: aws.String(indexList), Limit: aws.Int32(listPage), ScanIndexForward: aws.Bool(in.ascending),
				KeyConditionExpression:    aws.String("lpk = :p AND #num BETWEEN :low AND :high"),
				ExpressionAttributeNames:  map[string]string{"#num": "num"},
				ExpressionAttributeValues: item{":p": str(prefix + partitionOf(sqlstore.ConsumerNumber(c), p)), ":low": num(in.above + 1), ":high": num(1<<62 - 1)},
			}
			if in.below > 0 {
				q.ExpressionAttributeValues[":high"] = num(in.below - 1)
			}
			if in.above+1 <= integer(q.ExpressionAttributeValues[":high"]) {
				all = append(all, &cursor{query: q, consumer: c})
			}
		}
	}
	return all
}

// list yields the rows of consumers in the order of their numbers, until yield returns false. The
// index names them; their state is read from the table.
func (s *Store) list(ctx context.Context, consumers []stores.Consumer, prefix string, in span, yield func(listed) bool) error {
	all := s.listings(consumers, prefix, in)
	for {
		var batch []listed
		for len(batch) < listPage {
			i, from, err := all.next(ctx, s, in.ascending)
			if err != nil {
				return err
			}
			if i == nil {
				break
			}
			batch = append(batch, listed{key: keyOf(i), consumer: from.consumer})
		}
		if err := s.fresh(ctx, batch); err != nil {
			return err
		}
		for _, l := range batch {
			if l.row != nil && l.list != "" && !yield(l) {
				return nil
			}
		}
		if len(batch) < listPage {
			return nil
		}
	}
}

// tooMany is the pause after the service carried out only part of a request.
const tooMany = 50 * time.Millisecond

// fresh reads the rows of a batch from the table.
func (s *Store) fresh(ctx context.Context, batch []listed) error {
	if len(batch) == 0 {
		return nil
	}
	place := make(map[string]*listed, len(batch))
	request := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for i := range batch {
		place[string(blob(batch[i].key["pk"]))+"\x00"+string(blob(batch[i].key["sk"]))] = &batch[i]
	}
	for _, l := range place {
		request.Keys = append(request.Keys, l.key)
	}
	for len(request.Keys) > 0 {
		out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{s.table: request}})
		if err != nil {
			return s.explain(ctx, err)
		}
		for _, i := range out.Responses[s.table] {
			place[string(blob(i["pk"]))+"\x00"+string(blob(i["sk"]))].row = rowOf(i)
		}
		request.Keys = out.UnprocessedKeys[s.table].Keys
		if len(request.Keys) > 0 && !pause.Sleep(ctx, pause.Jitter(tooMany)) {
			return fmt.Errorf("dynamodb: %w: %w", stores.ErrUnavailable, context.Cause(ctx))
		}
	}
	return nil
}

// matching yields the failures that match a filter.
func (s *Store) matching(ctx context.Context, f stores.Filter, in span, yield func(listed) bool) error {
	consumers, err := s.allConsumers(ctx, f.Service, f.Handler)
	if err != nil {
		return err
	}
	now := s.clock.now()
	m := newMatch(f, now)
	if len(f.Numbers) == 1 {
		in.above, in.below = max(in.above, f.Numbers[0]-1), f.Numbers[0]+1
	}
	return s.list(ctx, consumers, "", in, func(l listed) bool {
		return !m.matches(l) || yield(l)
	})
}

// match is a prepared filter.
type match struct {
	stores.Filter
	status  map[stores.Status]bool
	numbers map[int64]bool
	now     int64
}

func newMatch(f stores.Filter, now int64) match {
	m := match{Filter: f, status: make(map[stores.Status]bool), numbers: make(map[int64]bool), now: now}
	if len(f.Status) == 0 {
		f.Status = []stores.Status{stores.StatusPending, stores.StatusFailed}
	}
	for _, status := range f.Status {
		m.status[status] = true
	}
	for _, n := range f.Numbers {
		m.numbers[n] = true
	}
	return m
}

func (m *match) matches(l listed) bool {
	return m.status[l.status] &&
		(m.Class == "" || l.class == m.Class) &&
		(m.Cause == "" || l.cause == m.Cause) &&
		(m.Topic == "" || l.topic == m.Topic) &&
		(m.ErrorContains == "" || strings.Contains(l.failure, m.ErrorContains)) &&
		(m.Numbers == nil || m.numbers[l.number]) &&
		(m.OrderKey == nil || string(l.orderKey) == string(m.OrderKey)) &&
		(m.ID == nil || string(idOf(l.key)) == string(m.ID)) &&
		(!m.Reserved || l.has(m.now)) &&
		(m.Since.IsZero() || l.lastAt >= m.Since.UnixMicro()) &&
		(m.Until.IsZero() || l.lastAt < m.Until.UnixMicro())
}
