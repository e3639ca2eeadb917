package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/urlquery"
	"github.com/millpond-go/millpond/stores"
)

// Store is a store on two DynamoDB tables. It is safe for concurrent use.
type Store struct {
	client    *dynamodb.Client
	hangUp    func() // closes the store's own connections
	table     string
	contents  string // the table with outputs, and the content of failed messages
	retention int64  // in seconds; 0: never delete

	clock   *clock
	flights sync.Map // the keys in flight
	leases  leases
	numbers numbers
	outputs outputNumbers
	schemas sync.Map // key attributes, by table
	refuses sqlstore.OutputCheck
	known   *sqlstore.Registered
}

var (
	_ stores.Store      = (*Store)(nil)
	_ stores.Resolver   = (*Store)(nil)
	_ stores.LeaseInbox = (*Store)(nil)
	_ stores.Attendance = (*Store)(nil)
	_ stores.Granter    = (*Store)(nil)
)

// New returns a store. It sends nothing unless AutoMigrate is set.
func New(ctx context.Context, c Config) (*Store, error) {
	if err := c.validate(urlquery.InGo); err != nil {
		return nil, err
	}
	loaded, hangUp, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	s := &Store{hangUp: hangUp, table: prefixOf(c) + "inbox", contents: prefixOf(c) + "content", retention: int64(c.Retention.Seconds()), clock: &clock{}, known: sqlstore.NewRegistered(string(pkg))}
	s.leases.rows = make(map[string]*row)
	loaded.HTTPClient = dated{loaded.HTTPClient, s.clock, answerWithin}
	if loaded.Retryer == nil {
		loaded.Retryer = retryer
	}
	s.client = dynamodb.NewFromConfig(loaded)
	if c.AutoMigrate {
		if _, err := s.Migrate(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func prefixOf(c Config) string { return cmp.Or(c.TablePrefix, "millpond_") }

// Client returns the store's client, for the program's own reads. What it writes is in no handler's
// transaction.
func (s *Store) Client() *dynamodb.Client { return s.client }

// Capabilities implements stores.Store.
func (s *Store) Capabilities() stores.Capabilities {
	return stores.Capabilities{System: "aws.dynamodb", ClaimsShared: true, Unordered: true, OutputsUnordered: true, ChangesSplit: true}
}

// Close implements stores.Store.
func (s *Store) Close() error {
	if s.known.Close() {
		s.hangUp()
	}
	return nil
}

// expiry returns when the service may delete an item that is finished at now, in seconds; 0: never.
func (s *Store) expiry(now int64) int64 {
	if s.retention == 0 {
		return 0
	}
	return instant(now).Unix() + s.retention
}

// ready checks once that the tables exist and fit this program.
func (s *Store) ready(ctx context.Context) error {
	return s.known.CheckOnce(ctx, s.Validate) //nolint:wrapcheck // the contract's own error
}

// listing is ready, for calls with a limit.
func (s *Store) listing(ctx context.Context, limit int) error {
	if limit <= 0 {
		return errors.New("dynamodb: the limit must be positive")
	}
	return s.ready(ctx)
}

// flight is the key's name among those in flight in this process.
func flight(k stores.Key) string { return k.Consumer.String() + "\x00" + string(k.ID) }

func (s *Store) flying(k stores.Key) bool {
	_, flying := s.flights.Load(flight(k))
	return flying
}

// leases are the rows of leases that this process took, as it wrote them. To complete one, nothing
// is read: the commit is refused if another holder has the lease by now. A second try reads.
type leases struct {
	mu   sync.Mutex
	rows map[string]*row
	last int64 // the last beat
}

// beat returns a growing number for a renewal, close to the time.
func (l *leases) beat(now int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last+1, now)
	return l.last
}

func (l *leases) keep(k stores.Key, r *row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows[flight(k)] = r; r.holder == "" {
		delete(l.rows, flight(k))
	}
}

// hasSteps marks a lease that may have steps.
func (l *leases) hasSteps(k stores.Key, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rows[flight(k)]; r != nil && r.version() == version {
		r.steps = true
	}
}

// take removes and returns the row of a key. It returns nil if the row has another version.
func (l *leases) take(k stores.Key, version int64) *row {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rows[flight(k)]
	delete(l.rows, flight(k))
	if r == nil || r.version() != version {
		return nil
	}
	return r
}
