package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

const pkg sqltx.Package = "dynamodb"

// get reads one item, strongly consistently.
func (s *Store) get(ctx context.Context, key item) (item, error) {
	return s.getFrom(ctx, s.table, key)
}

func (s *Store) getFrom(ctx context.Context, table string, key item) (item, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return out.Item, nil
}

// read reads one row, nil if there is none.
func (s *Store) read(ctx context.Context, key item) (*row, error) {
	i, err := s.get(ctx, key)
	return rowOf(i), err
}

// newOwn returns a value for row.own.
func newOwn() []byte {
	const size = 16
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails
	return b
}

// retryer sends a request up to four times. The SDK's own retryer waits up to two seconds in
// between, too long for a claim.
func retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 4
		o.Backoff = retry.BackoffDelayerFunc(func(try int, _ error) (time.Duration, error) { return pause.Jitter(backoff(try)), nil })
		o.Retryables = append(o.Retryables, retry.RetryableErrorCode{Codes: map[string]struct{}{"TransactionConflictException": {}}})
	})
}

// guard is the condition that a row has not changed since it was read.
type guard struct {
	seen   *row // nil: there was no row
	closed bool // a closed row counts as no row
	due    bool // and that the due time has not changed
	none   bool // no condition at all
}

// put returns the guarded write of an item.
func (g guard) put(table string, i item) *types.Put {
	condition, values := "attribute_not_exists(pk)", item(nil)
	switch {
	case g.seen == nil && g.closed:
		condition, values = condition+" OR #st = :closed", item{":closed": num(statusClosed)}
	case g.seen == nil:
	case g.due && g.seen.due != 0:
		condition, values = "#own = :own AND #due = :due", item{":own": bin(g.seen.own), ":due": num(g.seen.due)}
	default:
		condition, values = "#own = :own", item{":own": bin(g.seen.own)}
	}
	return &types.Put{
		TableName: &table, Item: i, ConditionExpression: &condition, ExpressionAttributeNames: named(condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// mayHold reports whether the condition may hold now or later, given the item.
func (g guard) mayHold(there item) bool {
	if g.none {
		return true
	}
	if g.seen != nil {
		return bytes.Equal(blob(there["own"]), g.seen.own)
	}
	return len(there) == 0 || g.closed && !rowOf(there).known()
}

var attributeNames = regexp.MustCompile(`#(\w+)`)

// named returns the attributes that expressions name as #name. Some are reserved words without it.
func named(expressions ...string) map[string]string {
	var names map[string]string
	for _, expression := range expressions {
		for _, name := range attributeNames.FindAllStringSubmatch(expression, -1) {
			if names == nil {
				names = make(map[string]string)
			}
			names[name[0]] = name[1]
		}
	}
	return names
}

// write replaces the row that was read. The error wraps ErrChanged if the row has changed since.
func (s *Store) write(ctx context.Context, key item, r *row, g guard) error {
	if r.own == nil || g.seen != nil && bytes.Equal(r.own, g.seen.own) {
		r.own = newOwn()
	}
	r.follow(g.seen)
	return s.replace(ctx, r.put(key), g)
}

// replace is write for an item.
func (s *Store) replace(ctx context.Context, i item, g guard) error {
	end, err := s.send(ctx, write{put: g.put(s.table, i), guard: g})
	return s.outcome(ctx, end, err)
}

// outcome returns the error of a write. It wraps ErrChanged if the condition did not hold.
func (s *Store) outcome(ctx context.Context, end ending, err error) error {
	switch end {
	case committed:
		return nil
	case declined:
		return fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	case failed, busy, open:
	}
	return s.explain(ctx, err)
}

// update changes some attributes of an item, if a condition holds. The SDK may repeat it.
func (s *Store) update(ctx context.Context, table string, key item, change, condition string, values item) (item, error) {
	in := &dynamodb.UpdateItemInput{
		TableName: &table, Key: key, UpdateExpression: &change, ExpressionAttributeNames: named(change, condition), ExpressionAttributeValues: values,
		ReturnValues: types.ReturnValueUpdatedNew, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if condition != "" {
		in.ConditionExpression = &condition
	}
	out, err := s.client.UpdateItem(ctx, in)
	if err != nil {
		return nil, err //nolint:wrapcheck // for refused or explain
	}
	return out.Attributes, nil
}

// refused explains the error of a conditional request. It returns nil if done says that an earlier
// try of the request wrote the existing item.
func (s *Store) refused(ctx context.Context, err error, done func(there item) bool) error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if done(failed.Item) {
			return nil
		}
		return fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	return s.explain(ctx, err)
}

// explain maps an error of the service to the contract's.
func (s *Store) explain(ctx context.Context, err error) error {
	if s.known.Closed() {
		return stores.ErrClosed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("dynamodb: %w: %w", stores.ErrUnavailable, err)
	}
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
		s.known.Forget()
		return fmt.Errorf("dynamodb: %w: the table %s", stores.ErrNotMigrated, s.table)
	}
	if tooLarge(err) {
		return fmt.Errorf("dynamodb: %w: %w", stores.ErrTooLarge, err)
	}
	return fmt.Errorf("dynamodb: %w: %w", stores.ErrUnavailable, err)
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func tooLarge(err error) bool {
	return codeOf(err) == "ValidationException" && strings.Contains(err.Error(), "Item size")
}

// query yields the items of a query, page by page, until yield returns false.
func (s *Store) query(ctx context.Context, q *dynamodb.QueryInput, yield func(item) bool) error {
	if q.TableName == nil {
		q.TableName = &s.table
	}
	for {
		out, err := s.client.Query(ctx, q)
		if err != nil {
			return s.explain(ctx, err)
		}
		for _, i := range out.Items {
			if !yield(i) {
				return nil
			}
		}
		if q.ExclusiveStartKey = out.LastEvaluatedKey; len(q.ExclusiveStartKey) == 0 {
			return nil
		}
	}
}

// partitionQuery returns a query of one partition of the table.
func partitionQuery(kind byte, pk []byte) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("pk = :pk"),
		ExpressionAttributeValues: item{":pk": bin(append([]byte{kind}, pk...))},
	}
}
