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

// attempt keeps its key among the flights until it ends.
type attempt struct {
	sqltx.Entry

	store   *Store
	claim   stores.Claim
	seen    *row // when the claim was won
	own     []byte
	tx      *Tx
	outcome sqltx.Outcome
	failure error // of the service
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

// completed returns the row that Commit writes. It names what is kept of the message until that is deleted.
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

// Interrupted implements stores.Interruptible: another delivery has completed or changed the
// message, or the service had no time for the transaction.
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

// TxFromContext returns the transaction that the attempt commits, for use in a handler with
// the context of its message. It reports false if there is no inbox on a DynamoDB store
// around the handler.
func TxFromContext(ctx context.Context) (*Tx, bool) {
	return sqltx.FromContext[*Tx](ctx, attemptKey{})
}

// Handler adapts a function that wants the transaction to a handler for
// Router.AddConsumerHandler. It returns stores.ErrNoTx without an inbox on a DynamoDB store
// around it, and stores.ErrReentered when it is run twice in one attempt.
func Handler(f func(ctx context.Context, tx *Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // router looks at the file of this function
}

// Lease returns a handler that causes an effect outside the database, and then calls write in the
// transaction that completes the message, with the effect's result. Write is repeated while it fails
// and the lease lives; the effect is not. The handler must be one of InboxConfig.LeaseByHandler, or
// it returns stores.ErrNoLease before the effect.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx *Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // router looks at the file of this function
}

// ConditionError says that a condition in the handler's transaction did not hold, so nothing was
// committed. It is a stores.ErrTxContended: the handler runs again at once.
type ConditionError struct {
	Table string
	Item  map[string]types.AttributeValue // as it is, if the operation asked for it
}

// Error implements error.
func (e *ConditionError) Error() string {
	return fmt.Sprintf("dynamodb: a condition of the handler's on an item of table %s does not hold", e.Table)
}

// Is reports whether the target is stores.ErrTxContended.
func (*ConditionError) Is(target error) bool { return target == stores.ErrTxContended }
