package dynamodb

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// write puts an item, and carries out other operations in the same transaction. The item's own
// value, which no other write has, shows whether the write was carried out.
type write struct {
	put    *types.Put // nil: nothing shows whether it was carried out
	guard  guard      // the condition of put
	others []types.TransactWriteItem
}

func (w write) own() []byte { return blob(w.put.Item["own"]) }

// ending is what is known about a write.
type ending uint8

const (
	committed ending = iota
	declined         // never carried out: the item has changed since it was read
	failed           // not committed, and another try would fail as well
	busy             // not committed; another try may succeed
	open             // unknown: it may still be carried out
)

// maxTries is how often a write is sent. All tries together take less than the ten minutes for
// which the service remembers the token.
const maxTries = 8

func backoff(try int) time.Duration { return 10 * time.Millisecond << min(try, 7) }

// send sends a write until its outcome is known. An earlier try may still be carried out, whatever
// the answer to a later one; then only the item shows the outcome.
func (s *Store) send(ctx context.Context, w write) (ending, error) {
	once := s.sender(w)
	pending := false
	for try := 1; ; try++ {
		err := once(ctx)
		end := w.judge(err)
		pending = pending || end == open
		switch {
		case ctx.Err() == nil && end >= busy && try < maxTries && pause.Sleep(ctx, pause.Jitter(backoff(try))):
		case pending && end > declined:
			return s.found(ctx, w), err
		default:
			return end, err
		}
	}
}

// sender returns a function that sends the same request on each call. A single item is written
// without a transaction, for half the price.
func (s *Store) sender(w write) func(context.Context) error {
	once := func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
	if p := w.put; p != nil && len(w.others) == 0 {
		input := &dynamodb.PutItemInput{
			TableName: p.TableName, Item: p.Item, ConditionExpression: p.ConditionExpression, ExpressionAttributeNames: p.ExpressionAttributeNames,
			ExpressionAttributeValues: p.ExpressionAttributeValues, ReturnValuesOnConditionCheckFailure: p.ReturnValuesOnConditionCheckFailure,
		}
		return func(ctx context.Context) error {
			_, err := s.client.PutItem(ctx, input, once)
			return err //nolint:wrapcheck // for judge
		}
	}
	input := &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: aws.String(hex.EncodeToString(newOwn())), // 32 bytes; 36 are allowed
		TransactItems:      w.others,
	}
	if w.put != nil {
		input.TransactItems = slices.Concat([]types.TransactWriteItem{{Put: w.put}}, w.others)
	}
	return func(ctx context.Context) error {
		_, err := s.client.TransactWriteItems(ctx, input, once)
		return err //nolint:wrapcheck // for judge
	}
}

// judge returns what an answer means. A refusal because the item has the write's own value is
// success: an earlier try was carried out.
func (w write) judge(err error) ending {
	if err == nil {
		return committed
	}
	if one, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return w.against(one.Item)
	}
	if canceled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return w.canceled(canceled.CancellationReasons)
	}
	switch codeOf(err) {
	case "TransactionConflictException", "ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "LimitExceededException":
		return busy
	case "TransactionInProgressException", "IdempotentParameterMismatchException", "InternalServerError", "InternalServerErrorException", "ServiceUnavailable":
		return open
	case "":
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return busy
		}
		return open
	}
	if status := statusOf(err); 0 < status && status < http.StatusInternalServerError {
		return failed
	}
	return open
}

// statusOf returns the status of an answer, or 0 without one.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}

func (w write) against(there item) ending {
	if bytes.Equal(blob(there["own"]), w.own()) {
		return committed
	}
	return declined
}

func (w write) canceled(reasons []types.CancellationReason) ending {
	if w.put != nil && len(reasons) > 0 && reasonOf(reasons[0]) == conditionFailed {
		return w.against(reasons[0].Item)
	}
	end := busy
	for _, r := range reasons {
		switch reasonOf(r) {
		case "None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		default:
			end = failed
		}
	}
	return end
}

const conditionFailed = "ConditionalCheckFailed"

func reasonOf(r types.CancellationReason) string { return aws.ToString(r.Code) }

// found reads the item. While the condition may still hold, the item proves nothing: the write may
// still be carried out.
func (s *Store) found(ctx context.Context, w write) ending {
	if w.put == nil {
		return open
	}
	there, err := s.getFrom(ctx, *w.put.TableName, keyOf(w.put.Item))
	switch {
	case err != nil:
	case w.against(there) == committed:
		return committed
	case !w.guard.mayHold(there):
		return declined
	}
	return open
}

// conditionOf returns the first failed condition among the last operations of a canceled
// transaction, or nil.
func conditionOf(err error, last []types.TransactWriteItem) *ConditionError {
	canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return nil
	}
	first := len(canceled.CancellationReasons) - len(last)
	for i := max(first, 0); i < len(canceled.CancellationReasons); i++ {
		if r := canceled.CancellationReasons[i]; reasonOf(r) == conditionFailed {
			table, _ := target(last[i-first])
			return &ConditionError{Table: table, Item: r.Item}
		}
	}
	return nil
}

// commit completes the message with the handler's operations and outputs.
func (a *attempt) commit(ctx context.Context, items []types.TransactWriteItem, outputs []emitted) error {
	s, g := a.store, guard{seen: a.seen}
	items, err := s.operations(ctx, items, outputs)
	if err != nil {
		a.failure = err
		return pkg.NotCommitted(err)
	}
	end, err := s.send(ctx, write{put: g.put(s.table, a.completed().put(messageKey(a.claim.Key))), guard: g, others: items})
	switch end {
	case committed:
		s.clear(ctx, messageKey(a.claim.Key), a.seen)
		return nil
	case declined, busy:
		a.failure = err
	case failed:
		if condition := conditionOf(err, items); condition != nil {
			err = fmt.Errorf("%w: %w", condition, err)
		}
	case open:
		return pkg.CommitUnknown(err)
	}
	return pkg.NotCommitted(err)
}

// clear deletes what was kept of a completed message. It ignores errors.
func (s *Store) clear(ctx context.Context, key item, r *row) {
	if r != nil {
		gone, _ := s.kept(ctx, key, r)
		_ = s.remove(ctx, gone)
	}
}

// Resolve implements stores.Resolver. It gives an item that is not completed a new own value, and
// writes a missing item, so that a late transaction fails.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	if err := k.Validate(); err != nil {
		return false, fmt.Errorf("dynamodb: %w", err)
	}
	for {
		seen, err := s.read(ctx, messageKey(k))
		if err != nil {
			return false, err
		}
		if seen.is(stores.StatusCompleted) {
			s.clear(ctx, messageKey(k), seen)
			return true, nil
		}
		closing := row{status: statusClosed}
		if seen != nil {
			closing = *seen
		}
		if !closing.known() {
			closing.expires = instant(s.clock.now()).Add(minRetention).Unix() // no request takes that long
		}
		if err := s.write(ctx, messageKey(k), &closing, guard{seen: seen, due: true}); !errors.Is(err, stores.ErrChanged) {
			return false, err
		}
	}
}
