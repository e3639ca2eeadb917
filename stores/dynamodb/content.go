package dynamodb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Content has its own table, so that changes of state do not pay for it, and programs that only
// count and list need no right to read it. It is written before the state that names it, and
// deleted after the last state that names it. If a process dies in between, what it leaves behind
// is never read.

const (
	maxPart    = 350 << 10 // bytes in one item, which has at most 400 KiB
	maxContent = 64 << 20  // so that a message fits into the memory of its readers
)

// pack encodes metadata, facts and payload as one value.
func pack(metadata map[string]string, facts stores.Facts, payload []byte) ([]byte, error) {
	m, err := sqlstore.EncodeMetadata(metadata)
	if err != nil {
		return nil, fmt.Errorf("dynamodb: %w", err)
	}
	f, err := sqlstore.EncodeFacts(facts)
	if err != nil {
		return nil, fmt.Errorf("dynamodb: %w", err)
	}
	if len(m)+len(f)+len(payload) > maxContent {
		return nil, fmt.Errorf("dynamodb: %w: it has %d bytes, and at most %d are kept", stores.ErrTooLarge, len(m)+len(f)+len(payload), maxContent)
	}
	packed := []byte{0}
	if payload != nil {
		packed[0] = 1
	}
	packed = binary.AppendUvarint(packed, uint64(len(m)))
	packed = append(packed, m...)
	packed = binary.AppendUvarint(packed, uint64(len(f)))
	packed = append(packed, f...)
	return append(packed, payload...), nil
}

// nothing is the result of pack for a message without any of the three.
var nothing = []byte{0, 0, 0}

// kept is decoded content.
type kept struct {
	metadata map[string]string
	facts    stores.Facts
	payload  []byte
	err      error
}

var errPacked = errors.New("dynamodb: the content cannot be read")

func unpack(packed []byte) (k kept) {
	if len(packed) == 0 {
		return kept{err: errPacked}
	}
	has, rest := packed[0] == 1, packed[1:]
	part := func() []byte {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) { //nolint:gosec // size is no longer than rest
			k.err = errPacked
			return nil
		}
		b := rest[size : size+int(n)] //nolint:gosec // it is no longer than rest
		rest = rest[size+int(n):]     //nolint:gosec // as above
		return b
	}
	m, f := part(), part()
	if k.err != nil {
		return k
	}
	var unread, unread2 error
	k.metadata, unread = sqlstore.DecodeMetadata(m)
	k.facts, unread2 = sqlstore.DecodeFacts(f)
	k.err = errors.Join(unread, unread2)
	if has {
		k.payload = append([]byte{}, rest...)
	}
	return k
}

// store packs content, writes it under a new name, and enters it in a row.
func (s *Store) store(ctx context.Context, r *row, metadata map[string]string, facts stores.Facts, payload []byte) error {
	r.contentID, r.chunks, r.bytes, r.packed = nil, 0, 0, 0
	packed, err := pack(metadata, facts, payload)
	if err != nil || bytes.Equal(packed, nothing) {
		return err
	}
	r.contentID, r.bytes, r.packed = newOwn(), len(payload), len(packed)
	for part := range slices.Chunk(packed, maxPart) {
		i := key(kindContent, r.contentID, number8(int64(r.chunks)))
		i["b"] = bin(part)
		if _, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.contents, Item: i}); err != nil {
			return s.explain(ctx, err)
		}
		r.chunks++
	}
	return nil
}

// load reads the content that a row names.
func (s *Store) load(ctx context.Context, r *row) (kept, error) {
	if r.chunks == 0 {
		return kept{}, nil
	}
	var packed []byte
	parts := 0
	q := partitionQuery(kindContent, r.contentID)
	q.TableName = &s.contents
	err := s.query(ctx, q, func(i item) bool {
		packed = append(packed, blob(i["b"])...)
		parts++
		return parts < r.chunks
	})
	if err != nil || parts < r.chunks {
		return kept{err: errPacked}, err
	}
	return unpack(packed), nil
}

// parts returns the deletions of a row's content.
func (s *Store) parts(r *row) (gone []types.TransactWriteItem) {
	for part := range r.chunks {
		gone = append(gone, deletion(s.contents, key(kindContent, r.contentID, number8(int64(part))), nil))
	}
	return gone
}

func deletion(table string, key item, condition *string) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{TableName: &table, Key: key, ConditionExpression: condition}}
}

// remove carries deletions out, one by one.
func (s *Store) remove(ctx context.Context, gone []types.TransactWriteItem) error {
	for _, g := range gone {
		if _, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: g.Delete.TableName, Key: g.Delete.Key}); err != nil {
			return s.explain(ctx, err)
		}
	}
	return nil
}

// drop deletes the content of a deleted row, as far as possible.
func (s *Store) drop(ctx context.Context, r *row) {
	if r != nil {
		_ = s.remove(ctx, s.parts(r))
	}
}

// abandon deletes content that a refused write has named, unless an earlier try of the request was
// carried out, so that the row has it. What is not known to be refused may still be carried out.
func (s *Store) abandon(ctx context.Context, key item, r *row, err error) {
	if !errors.Is(err, stores.ErrChanged) {
		return
	}
	there, err := s.read(ctx, key)
	if err == nil && (there == nil || !bytes.Equal(there.contentID, r.contentID)) {
		s.drop(ctx, r)
	}
}

// numbers are drawn for failures and rows of the quarantine, many at a time. They grow within a process,
// and roughly among several.
type numbers struct {
	mu         sync.Mutex
	next, last int64
	until      int64 // by the service's clock; then new ones are drawn, so that numbers follow the time
}

const (
	drawn   = 64
	drawFor = 10_000_000 // microseconds
)

// draw returns a unique number.
func (s *Store) draw(ctx context.Context) (int64, error) {
	n := &s.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	now := s.clock.now()
	if n.next > 0 && n.next <= n.last && now < n.until {
		n.next++
		return n.next - 1, nil
	}
	last, err := s.count(ctx, "f", drawn)
	if err != nil {
		return 0, err
	}
	n.last, n.next, n.until = last, last-drawn+2, now+drawFor
	return last - drawn + 1, nil
}

// count adds to a counter, and returns its new value.
func (s *Store) count(ctx context.Context, name string, n int64) (int64, error) {
	now, err := s.update(ctx, s.table, key(kindCounter, []byte(name), nil), "ADD #last :n", "", item{":n": num(n)})
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	return integer(now["last"]), nil
}
