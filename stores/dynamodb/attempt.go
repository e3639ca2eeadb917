package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// attempt is one run of a handler. Its key is in Store.flights until it ends.
type attempt struct {
	sqltx.Entry

	store   *Store
	claim   stores.Claim
	seen    *row // as it was when the claim was won
	own     []byte
	tx      *Tx
	outcome sqltx.Outcome
	failure error // from the service
}

var (
	_ stores.Attempt       = (*attempt)(nil)
	_ stores.Interruptible = (*attempt)(nil)
	_ stores.Refusing      = (*attempt)(nil)
)

type attemptKey struct{}

func newAttempt(s *Store, c stores.Claim, seen *row) *attempt {
	c.Key.ID = slices.Clone(c.Key.ID)
	return &attempt{store: s, claim: c, seen: seen, own: newOwn(), tx: &Tx{store: s}}
}

// Context implements stores.Attempt.
func (a *attempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, a)
}

// Commit implements stores.Attempt.
func (a *attempt) Commit(ctx context.Context) error {
	return a.outcome.Commit(func() error {
		defer a.store.flights.Delete(flight(a.claim.Key))
		refused, items, outputs := a.tx.end()
		reason := a.Doomed()
		switch {
		case reason != nil:
		case refused != nil:
			reason = sqltx.Aborted(refused)
		case ctx.Err() != nil:
			reason = context.Cause(ctx)
		default:
			return a.commit(ctx, items, outputs)
		}
		return pkg.NotCommitted(reason)
	})
}

// Rollback implements stores.Attempt. Nothing was sent.
func (a *attempt) Rollback(context.Context) error {
	return a.outcome.Rollback(pkg, func() error {
		_, _, _ = a.tx.end()
		a.store.flights.Delete(flight(a.claim.Key))
		return nil
	})
}

// completed returns the row that Commit writes. It keeps the names of the message's content and
// steps until they are deleted.
func (a *attempt) completed() *row {
	now := a.store.clock.now()
	r := &row{status: stores.StatusCompleted, own: a.own, fingerprint: a.claim.Fingerprint.Bytes(), completedAt: now, expires: a.store.expiry(now)}
	if a.seen.known() {
		r.fingerprint, r.contentID, r.chunks, r.steps = a.seen.fingerprint, a.seen.contentID, a.seen.chunks, a.seen.steps
	}
	if t := a.claim.TraceParent; !t.IsZero() {
		r.trace = t[:]
	}
	return r
}

// Interrupted implements stores.Interruptible: another delivery completed or changed the message,
// or the service was too busy for the transaction.
func (a *attempt) Interrupted() error {
	if a.failure == nil {
		return nil
	}
	return pkg.Interrupted(a.failure, func(error) bool { return true })
}

// Refuses implements stores.Refusing.
func (*attempt) Refuses(err error) bool {
	if canceled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		for _, r := range canceled.CancellationReasons {
			if code := reasonOf(r); code == "ValidationError" || code == "ItemCollectionSizeLimitExceeded" {
				return true
			}
		}
	}
	return codeOf(err) == "ValidationException" || statusOf(err) == http.StatusRequestEntityTooLarge || errors.Is(err, ErrTooMany) || errors.Is(err, ErrSameItem)
}

// Native implements sqltx.Carrier.
func (a *attempt) Native() *Tx { return a.tx }

// TxFromContext returns the transaction that the attempt commits, from the context of the handler's
// message. It reports false outside an inbox on a DynamoDB store.
func TxFromContext(ctx context.Context) (*Tx, bool) {
	return sqltx.FromContext[*Tx](ctx, attemptKey{})
}

// Handler adapts a function that takes the transaction to a handler for Router.AddConsumerHandler.
// The handler returns stores.ErrNoTx outside an inbox on a DynamoDB store, and stores.ErrReentered
// when it runs twice in one attempt.
func Handler(f func(ctx context.Context, tx *Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // router needs the file of this function
}

// Lease returns a handler that runs effect, an effect outside the database, and then write, in the
// transaction that completes the message, with the effect's result. While the lease lives, write is
// repeated if it fails; effect is not. Name the handler in InboxConfig.LeaseByHandler: otherwise it
// returns stores.ErrNoLease before the effect.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx *Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // router needs the file of this function
}

// ConditionError says that a condition in the handler's transaction did not hold, so nothing was
// committed. It is a stores.ErrTxContended: the handler is run again at once.
type ConditionError struct {
	Table string
	Item  map[string]types.AttributeValue // its current state, if the operation asked for it
}

// Error implements error.
func (e *ConditionError) Error() string {
	return fmt.Sprintf("dynamodb: a condition of the handler on an item of table %s does not hold", e.Table)
}

// Is reports whether the target is stores.ErrTxContended.
func (*ConditionError) Is(target error) bool { return target == stores.ErrTxContended }
