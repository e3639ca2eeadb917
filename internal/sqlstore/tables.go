package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// Tables is what a store knows about its tables. It is safe for concurrent use.
type Tables struct {
	*Registered

	db         Database
	migrations []stores.Migration
	dialect    atomic.Pointer[Dialect] // set by the first call
	refuses    OutputCheck
}

// Store is the part of the contract that is the same on all databases. Stores embed it.
type Store struct{ t *Tables }

// New returns a database's tables, without I/O. name is the store's package.
func New(name string, db Database, migrations []stores.Migration) *Tables {
	return &Tables{Registered: NewRegistered(name), db: db, migrations: migrations}
}

// Store returns only the contract's methods.
func (t *Tables) Store() Store { return Store{t} }

// Dialect returns the database's dialect, for a store with a registered consumer.
func (t *Tables) Dialect() *Dialect { return t.dialect.Load() }

func (t *Tables) sql(text string) string   { return t.dialect.Load().SQL(text) }
func (t *Tables) fixed(text string) string { return t.dialect.Load().Fixed(text) }

// learn calls Learn before the first consumer is registered, and so before any other operation.
func (t *Tables) learn(ctx context.Context, again bool) error {
	d, err := t.db.Learn(ctx, again)
	if err != nil {
		return t.Explain(ctx, err)
	}
	t.dialect.CompareAndSwap(nil, d)
	return nil
}

// Ready checks once that the tables exist and fit this program, for calls that need no registered
// consumer.
func (t *Tables) Ready(ctx context.Context) error {
	return t.CheckOnce(ctx, t.Store().Validate)
}

// errMistake marks errors about the call itself. They are returned unchanged, as are the
// contract's.
var errMistake = errors.New("use it otherwise")

// mistake is an error about the call itself.
type mistake struct{ text string }

func (m *mistake) Error() string        { return m.text }
func (m *mistake) Is(target error) bool { return target == errMistake }

func mistakef(format string, args ...any) error { return &mistake{fmt.Sprintf(format, args...)} }

var meaningful = []error{
	stores.ErrUnavailable, stores.ErrNotMigrated, stores.ErrSchemaNewer, stores.ErrClosed, stores.ErrChanged, stores.ErrNotFound,
	stores.ErrNotKept, stores.ErrTooLarge, stores.ErrConsumerConflict, stores.ErrConsumerCollision,
	stores.ErrInvalidKey, stores.ErrInvalidOutput, stores.ErrUnordered, stores.ErrArchive, errMistake, ErrUnusable,
}

// Meaningful reports whether an error is already explained.
func Meaningful(err error) bool {
	return slices.ContainsFunc(meaningful, func(meaning error) bool { return errors.Is(err, meaning) })
}

// Explain maps an error to one of the contract's. The result begins with the store's name.
func (t *Tables) Explain(ctx context.Context, err error) error {
	known := strings.HasPrefix(err.Error(), t.name+": ")
	switch {
	case known:
	case Meaningful(err):
		err = fmt.Errorf("%s: %w", t.name, err)
	default:
		err = t.db.Explain(ctx, err)
	}
	if errors.Is(err, stores.ErrNotMigrated) {
		t.Forget()
	}
	return err
}

// Inspect runs one call of an operator, which must have a limit.
func (t *Tables) Inspect(ctx context.Context, limit int, f func() error) error {
	if err := t.Ready(ctx); err != nil {
		return err
	}
	if limit <= 0 {
		return fmt.Errorf("%s: the limit must be positive", t.name)
	}
	if err := f(); err != nil {
		return t.Explain(ctx, err)
	}
	return nil
}

// inspect is Inspect for a call about consumers; empty names mean all.
func (t *Tables) inspect(ctx context.Context, limit int, service, handler string, f func(Consumers) error) error {
	return t.Inspect(ctx, limit, func() error {
		c, err := t.consumersNamed(ctx, service, handler)
		if err != nil {
			return err
		}
		return f(c)
	})
}

// matching is Inspect for a call about the failures that match a filter.
func (t *Tables) matching(ctx context.Context, limit int, f stores.Filter, call func(*Condition, Consumers) error) error {
	return t.Inspect(ctx, limit, func() error {
		w, c, err := t.Matching(ctx, f)
		if err != nil {
			return err
		}
		return call(w, c)
	})
}

// Widths of text columns, in bytes.
const (
	maxPlaceBytes = 1 << 10 // names of places, which come from outside
	maxWordBytes  = 200     // codecs, classes and causes
)

// Encoded is the stored form of values that need an encoding.
type Encoded struct{ Metadata, Facts []byte }

// encode returns the stored form if it fits into one row with the other values.
func (t *Tables) encode(metadata map[string]string, facts stores.Facts, others ...int) (e Encoded, err error) {
	size := 0
	for _, n := range others {
		size += n
	}
	unencoded := len(facts.Key) + len(facts.NativeID)
	for name, value := range metadata {
		unencoded += len(name) + len(value)
	}
	if err := t.db.Fits(size + unencoded); err != nil {
		return Encoded{}, err
	}
	if e.Metadata, err = EncodeMetadata(metadata); err == nil {
		e.Facts, err = EncodeFacts(facts)
	}
	if err != nil {
		return Encoded{}, fmt.Errorf("%s: %w", t.name, err)
	}
	return e, t.db.Fits(size + len(e.Metadata) + len(e.Facts))
}

// TraceBytes returns a trace parent's bytes, or nil if there is none.
func TraceBytes(t *stores.TraceParent) []byte {
	if t.IsZero() {
		return nil
	}
	return t[:]
}
