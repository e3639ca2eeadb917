package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const (
	indexDue  = "due"  // parked messages, by due time
	indexList = "list" // all failures and the quarantine, by number
)

// partitions is how many partitions a consumer has in an index. Each takes 1,000 writes a second.
const partitions = 4

func partition(consumer int64, id []byte) string {
	h := fnv.New32a()
	_, _ = h.Write(id)
	return partitionOf(consumer, int(h.Sum32()%partitions))
}

func partitionOf(consumer int64, p int) string {
	return strconv.FormatInt(consumer, 36) + "#" + strconv.Itoa(p)
}

// candidates returns the keys and times of a consumer's due messages, the longest due first, at
// most limit from each partition. They come from an index: the rows may have changed since.
func (s *Store) candidates(ctx context.Context, consumer, now int64, limit int) ([]item, error) {
	var found [partitions][]item
	err := each(partitions, func(p int) error {
		return s.query(ctx, &dynamodb.QueryInput{
			IndexName: aws.String(indexDue), Limit: aws.Int32(int32(min(limit, 1000))), //nolint:gosec // it is small
			KeyConditionExpression:    aws.String("dpk = :p AND due <= :now"),
			ExpressionAttributeValues: item{":p": str(partitionOf(consumer, p)), ":now": num(now)},
		}, func(i item) bool {
			found[p] = append(found[p], i)
			return len(found[p]) < limit
		})
	})
	all := slices.Concat(found[:]...)
	slices.SortStableFunc(all, func(a, b item) int { return cmp.Compare(integer(a["due"]), integer(b["due"])) })
	return all, err
}

// Due implements stores.Retries. An index names candidates, and a guarded change reserves each.
func (s *Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	consumer, err := s.known.Consumer(q.Consumer)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 || q.Reserve <= 0 || q.MaxBytes < 0 {
		return nil, errors.New("dynamodb: due: Limit and Reserve must be positive, and MaxBytes not negative")
	}
	now := s.clock.now()
	const more = 2 // some have changed, or another worker has reserved them
	all, err := s.candidates(ctx, consumer, now, more*q.Limit)
	if err != nil {
		return nil, err
	}
	var (
		found []stores.Retry
		size  int
	)
	for _, c := range all {
		if len(found) == q.Limit {
			break
		}
		retry, bytes, err := s.reserve(ctx, keyOf(c), q, size)
		switch {
		case errors.Is(err, errFull):
			return found, nil
		case errors.Is(err, stores.ErrChanged):
			continue
		case err != nil && len(found) > 0: // they are reserved
			return found, nil
		case err != nil:
			return nil, err
		}
		size += bytes
		found = append(found, retry)
	}
	return found, nil
}

var errFull = errors.New("dynamodb: no more bytes")

// reserve reserves one message, and reads its content.
func (s *Store) reserve(ctx context.Context, key item, q stores.DueQuery, size int) (stores.Retry, int, error) {
	changed := fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	k := stores.Key{Consumer: q.Consumer, ID: idOf(key)}
	seen, err := s.read(ctx, key)
	if err != nil {
		return stores.Retry{}, 0, err
	}
	now := s.clock.now()
	if !seen.is(stores.StatusPending) || seen.placement != stores.PlacementParked || seen.due+marginOf(seen) > now || s.flying(k) {
		return stores.Retry{}, 0, changed
	}
	bytes := seen.packed
	if size > 0 && q.MaxBytes > 0 && size+bytes > q.MaxBytes {
		return stores.Retry{}, 0, errFull
	}
	r := *seen
	r.suspect, r.reserved, r.holder = r.suspect || r.reserved, true, ""
	r.revision++
	r.due = now + q.Reserve.Microseconds()
	if err := s.write(ctx, key, &r, guard{seen: seen, due: true}); err != nil {
		return stores.Retry{}, 0, err
	}
	content, err := s.load(ctx, &r)
	if err != nil {
		return stores.Retry{}, 0, err
	}
	return s.retry(k, &r, content), max(1, bytes), nil
}

func (s *Store) retry(k stores.Key, r *row, c kept) stores.Retry {
	state := s.state(r)
	retry := stores.Retry{
		Key: k, State: state, Suspect: r.suspect, Topic: r.topic, Coordinates: r.coordinates, OrderKey: r.orderKey,
		LastError: r.failure, Cause: r.cause,
		Content: stores.Content{State: state.Content, Codec: r.codec, UUID: string(r.uuid), Metadata: c.metadata, Facts: c.facts, Payload: c.payload},
	}
	if c.err != nil {
		retry.Err = fmt.Errorf("%s: %w", k, c.err)
	}
	retry.Fingerprint, _ = stores.ParseFingerprint(r.fingerprint) // a later version's cannot be compared
	copy(retry.TraceParent[:], r.trace)
	return retry
}

// Renew implements stores.Retries, with one write per message.
func (s *Store) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	now := s.clock.now()
	for _, r := range reserved {
		n, revision := sqlstore.ParseVersion(r.State.Version)
		_, err := s.update(ctx, s.table, messageKey(r.Key), "SET #due = :until", "#num = :num AND #rev = :rev AND #rsv = :yes",
			item{":until": num(now + d.Microseconds()), ":num": num(n), ":rev": num(revision), ":yes": yes})
		if err := s.refused(ctx, err, func(item) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

// Release implements stores.Retries.
func (s *Store) Release(ctx context.Context, reserved []stores.Retry) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for _, one := range reserved {
		seen, err := s.read(ctx, messageKey(one.Key))
		if err != nil {
			return err
		}
		if !seen.is(stores.StatusPending) || seen.version() != one.State.Version || !seen.reserved || s.flying(one.Key) {
			continue
		}
		r := *seen
		r.reserved, r.revision, r.due = false, r.revision+1, s.clock.now()
		if err := s.write(ctx, messageKey(one.Key), &r, guard{seen: seen}); err != nil && !errors.Is(err, stores.ErrChanged) {
			return err
		}
	}
	return nil
}

// Backlog implements stores.Retries.
func (s *Store) Backlog(ctx context.Context, limit int) ([]stores.Backlog, error) {
	if err := s.listing(ctx, limit); err != nil {
		return nil, err
	}
	all, err := s.allConsumers(ctx, "", "")
	if err != nil {
		return nil, err
	}
	now := s.clock.now()
	var backlog []stores.Backlog
	for _, c := range all {
		due, err := s.candidates(ctx, sqlstore.ConsumerNumber(c), now, limit)
		if err != nil {
			return nil, err
		}
		if len(due) > 0 {
			backlog = append(backlog, stores.Backlog{Consumer: c, Due: min(len(due), limit), Oldest: micros(now - integer(due[0]["due"]))})
		}
	}
	return backlog, nil
}
