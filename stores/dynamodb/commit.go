package dynamodb

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
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

// ending is what an answer says about a transaction.
type ending uint8

const (
	committed ending = iota
	declined         // never: the item has changed since it was read
	failed           // not committed, and another try would fail, too
	busy             // not committed; another try may succeed
	open             // it may still be carried out
)

// commit sends the transaction until its outcome is known. The answer to one try says nothing about an
// earlier one that may still be carried out: then only the item tells, and Resolve closes it.
func (a *attempt) commit(ctx context.Context, items []types.TransactWriteItem, outputs []emitted) error {
	done, err := a.completed()
	items, cannot := a.store.operations(items, outputs)
	if err = errors.Join(err, cannot); err != nil {
		return pkg.NotCommitted(err)
	}
	send := a.sender(done, items)
	pending := false
	for try := 1; ; try++ {
		err = send(ctx)
		end := a.judge(err)
		if end == open {
			pending = true
		}
		switch {
		case end == committed:
			a.clear(ctx)
			return nil
		case end == declined:
			a.failure = err
			return pkg.NotCommitted(err)
		case ctx.Err() == nil && end >= busy && try < maxTries && pause.Sleep(ctx, pause.Jitter(backoff(try))):
			continue
		case pending:
			return a.unknown(ctx, err)
		case end == busy:
			a.failure = err
		}
		if failed := conditionOf(err, 1, items); failed != nil {
			err = fmt.Errorf("%w: %w", failed, err)
		}
		return pkg.NotCommitted(err)
	}
}

// clear deletes what was kept of a completed message.
func (a *attempt) clear(ctx context.Context) {
	if a.seen != nil {
		gone, _ := a.store.kept(ctx, messageKey(a.claim.Key), a.seen) // as far as possible
		_ = a.store.remove(ctx, gone)
	}
}

// maxTries is how often a transaction is sent. ctx ends long before the service forgets the token,
// after ten minutes.
const maxTries = 8

func backoff(try int) time.Duration { return 10 * time.Millisecond << min(try, 7) }

// sender returns a function that sends always the same request, once per call. The inbox item alone is
// written without a transaction, for half the price.
func (a *attempt) sender(done *row, items []types.TransactWriteItem) func(context.Context) error {
	put := &types.Put{TableName: &a.store.table, Item: done.put(messageKey(a.claim.Key)), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
	put.ConditionExpression, put.ExpressionAttributeNames, put.ExpressionAttributeValues = guard{seen: a.seen}.expression()
	once := func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
	if len(items) == 0 {
		input := &dynamodb.PutItemInput{
			TableName: put.TableName, Item: put.Item, ConditionExpression: put.ConditionExpression, ExpressionAttributeNames: put.ExpressionAttributeNames,
			ExpressionAttributeValues: put.ExpressionAttributeValues, ReturnValuesOnConditionCheckFailure: put.ReturnValuesOnConditionCheckFailure,
		}
		return func(ctx context.Context) error {
			_, err := a.store.client.PutItem(ctx, input, once)
			return err //nolint:wrapcheck // it is judged
		}
	}
	input := &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: aws.String(hex.EncodeToString(a.own)), // 32 bytes of the 36
		TransactItems:      slices.Concat([]types.TransactWriteItem{{Put: put}}, items),
	}
	return func(ctx context.Context) error {
		_, err := a.store.client.TransactWriteItems(ctx, input, once)
		return err //nolint:wrapcheck // it is judged
	}
}

// judge returns what an answer means. A refusal because of the attempt's own item is success: an
// earlier try was carried out.
func (a *attempt) judge(err error) ending {
	if err == nil {
		return committed
	}
	if one, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return a.against(one.Item)
	}
	if canceled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return a.canceled(canceled.CancellationReasons)
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
	if answer, ok := errors.AsType[*awshttp.ResponseError](err); ok && answer.HTTPStatusCode() < http.StatusInternalServerError {
		return failed
	}
	return open
}

func (a *attempt) against(there item) ending {
	if bytes.Equal(blob(there["own"]), a.own) {
		return committed
	}
	return declined
}

func (a *attempt) canceled(reasons []types.CancellationReason) ending {
	if len(reasons) > 0 && reasonOf(reasons[0]) == "ConditionalCheckFailed" {
		return a.against(reasons[0].Item)
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

func reasonOf(r types.CancellationReason) string { return aws.ToString(r.Code) }

// unknown reads the item. An item without the attempt's own value proves nothing: the transaction may
// still be carried out.
func (a *attempt) unknown(ctx context.Context, cause error) error {
	there, err := a.store.read(ctx, messageKey(a.claim.Key))
	switch {
	case err != nil:
	case there != nil && bytes.Equal(there.own, a.own):
		a.clear(ctx)
		return nil
	case there != nil && (a.seen == nil || !bytes.Equal(there.own, a.seen.own)):
		a.failure = fmt.Errorf("the message was changed by others: %w", cause)
		return pkg.NotCommitted(a.failure)
	}
	return pkg.CommitUnknown(cause)
}

// conditionOf returns the first condition that canceled a transaction, nil if none did. The first of
// items has the index begin in the request.
func conditionOf(err error, begin int, items []types.TransactWriteItem) *ConditionError {
	canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return nil
	}
	for i, r := range canceled.CancellationReasons {
		if i >= begin && i-begin < len(items) && reasonOf(r) == "ConditionalCheckFailed" {
			table, _, _ := target(items[i-begin])
			return &ConditionError{Table: table, Item: r.Item}
		}
	}
	return nil
}

// Resolve implements stores.Resolver. It gives an item that is not completed a new value of its own,
// and writes a missing one, so a transaction that arrives late fails.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	if s.known.Closed() {
		return false, stores.ErrClosed
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
			return true, nil
		}
		closing := row{status: statusClosed}
		if seen != nil {
			closing = *seen
		}
		if !closing.known() {
			now, err := s.clock.now()
			if err != nil {
				return false, err
			}
			closing.expires = instant(now).Add(minRetention).Unix() // no request takes so long
		}
		if err := s.write(ctx, messageKey(k), &closing, guard{seen: seen, due: true}); !errors.Is(err, stores.ErrChanged) {
			return false, err
		}
	}
}

// canonical returns the same text for all forms of a number.
func canonical(n string) string {
	if r, ok := new(big.Rat).SetString(n); ok {
		return r.RatString()
	}
	return n
}
