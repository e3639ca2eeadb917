package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/stores"
)

// MaxOperations is the largest number of a handler's operations and outputs together. The service
// allows 100, and the inbox needs one.
const MaxOperations = 99

// Errors of [Tx]. After one of them an attempt cannot be committed, even if the handler hides it. A
// message that always causes one fails for good.
var (
	// ErrSameItem: the transaction already has an operation on the item, and the service allows
	// one. Put all changes of an item into one Update, and a check into the condition of the write.
	ErrSameItem = errors.New("dynamodb: the transaction has an operation on this item")
	// ErrTooMany: the handler's operations and outputs do not fit into one transaction.
	ErrTooMany = fmt.Errorf("dynamodb: a handler has at most %d operations in its transaction", MaxOperations)
	// ErrOwnTable: handlers must not write to millpond's tables.
	ErrOwnTable = errors.New("dynamodb: the table belongs to millpond")
)

// Tx collects a handler's writes. When the handler has returned nil, the attempt sends them in one
// request, with the inbox item. It is safe for concurrent use.
//
// Its methods that add an operation refuse it with [ErrSameItem], [ErrTooMany], [ErrOwnTable], or
// stores.ErrTxClosed after the attempt. They keep the operation's maps: do not change them
// afterwards.
type Tx struct {
	store *Store

	mu      sync.Mutex
	over    bool
	items   []types.TransactWriteItem
	outputs []emitted
	bytes   int   // bytes of the outputs
	refused error // the first refusal
}

// Put adds a write of a whole item.
func (t *Tx) Put(ctx context.Context, p types.Put) error {
	return t.add(ctx, types.TransactWriteItem{Put: &p})
}

// Update adds a change of an item.
func (t *Tx) Update(ctx context.Context, u types.Update) error {
	return t.add(ctx, types.TransactWriteItem{Update: &u})
}

// Delete adds a deletion.
func (t *Tx) Delete(ctx context.Context, d types.Delete) error {
	return t.add(ctx, types.TransactWriteItem{Delete: &d})
}

// Check adds a condition on an item that the transaction does not write.
func (t *Tx) Check(ctx context.Context, c types.ConditionCheck) error {
	return t.add(ctx, types.TransactWriteItem{ConditionCheck: &c})
}

// Client returns the store's client, for reads. They are not in the transaction: repeat what you
// rely on as conditions.
func (t *Tx) Client() *dynamodb.Client { return t.store.client }

// add adds an operation, or returns why the transaction refuses it.
func (t *Tx) add(ctx context.Context, i types.TransactWriteItem) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return fmt.Errorf("dynamodb: %w", stores.ErrTxClosed)
	}
	if err := t.refuse(ctx, i); err != nil {
		if t.refused == nil {
			t.refused = err
		}
		return err
	}
	t.items = append(t.items, i)
	return nil
}

// refuse returns why the transaction refuses an operation, or nil.
func (t *Tx) refuse(ctx context.Context, i types.TransactWriteItem) error {
	table, it := target(i)
	switch {
	case table == t.store.table || table == t.store.contents:
		return fmt.Errorf("%w: %s", ErrOwnTable, table)
	case len(t.items)+len(t.outputs) == MaxOperations:
		return ErrTooMany
	}
	for _, other := range t.items {
		has, otherItem := target(other)
		if has != table {
			continue
		}
		names, err := t.store.keyNames(ctx, table)
		if err != nil {
			return err
		}
		if key := keyText(it, names); key == keyText(otherItem, names) {
			return fmt.Errorf("%w: %s in table %s: make one operation of both", ErrSameItem, key, table)
		}
	}
	return nil
}

// end closes the transaction, and returns its operations and the first refusal.
func (t *Tx) end() (refused error, items []types.TransactWriteItem, outputs []emitted) { //nolint:revive,staticcheck // it is not an error of this call
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.refused, t.items, t.outputs
}

// target returns an operation's table and its item's key; for a Put, the whole item.
func target(i types.TransactWriteItem) (table string, it item) {
	var name *string
	switch {
	case i.Put != nil:
		name, it = i.Put.TableName, i.Put.Item
	case i.Update != nil:
		name, it = i.Update.TableName, i.Update.Key
	case i.Delete != nil:
		name, it = i.Delete.TableName, i.Delete.Key
	case i.ConditionCheck != nil:
		name, it = i.ConditionCheck.TableName, i.ConditionCheck.Key
	}
	table = aws.ToString(name)
	return table[strings.LastIndex(table, "/")+1:], it // the last part of an ARN
}

// keyText returns the same text exactly for the same key. Each key attribute of a table has one
// type.
func keyText(of item, names []string) string {
	key := make(map[string]string, len(names))
	for _, name := range names {
		switch v := of[name].(type) {
		case *types.AttributeValueMemberS:
			key[name] = v.Value
		case *types.AttributeValueMemberB:
			key[name] = string(v.Value)
		case *types.AttributeValueMemberN:
			key[name] = v.Value
			if r, ok := new(big.Rat).SetString(v.Value); ok { // one number can be written in many ways
				key[name] = r.RatString()
			}
		}
	}
	return strings.TrimPrefix(fmt.Sprintf("%q", key), "map")
}

// keyNames returns the key attributes of a table, read once. Only they tell which item a Put
// writes.
func (s *Store) keyNames(ctx context.Context, table string) (names []string, err error) {
	if known, ok := s.schemas.Load(table); ok {
		return known.([]string), nil //nolint:forcetypeassert // the only type in it
	}
	out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return nil, fmt.Errorf("dynamodb: the key of table %s cannot be read, so two operations on it cannot be told apart: %w", table, err)
	}
	for _, k := range out.Table.KeySchema {
		names = append(names, *k.AttributeName)
	}
	s.schemas.Store(table, names)
	return names, nil
}
