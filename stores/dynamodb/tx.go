package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/stores"
)

// MaxOperations is how many operations a handler has in its transaction, and outputs with them:
// one of the 100 that the service allows is the inbox's.
const MaxOperations = 99

// Errors of [Tx]. An attempt that has met one cannot be committed, whether or not the handler
// returns it, and a message that would always meet it fails for good.
var (
	// ErrSameItem: the transaction has an operation on the item. The service allows one: put
	// changes of an item into one Update, and a check into the condition of the write.
	ErrSameItem = errors.New("dynamodb: the transaction has an operation on this item")
	// ErrTooMany: the handler has more operations than fit into one transaction.
	ErrTooMany = fmt.Errorf("dynamodb: a handler has at most %d operations in its transaction", MaxOperations)
	// ErrOwnTable: the table is millpond's.
	ErrOwnTable = errors.New("dynamodb: the table belongs to millpond")
)

// Tx collects what a handler writes. The attempt sends it in one request, with the inbox item,
// when the handler has returned nil. It is safe for concurrent use.
type Tx struct {
	store *Store

	mu      sync.Mutex
	over    bool
	items   []types.TransactWriteItem
	outputs []emitted
	bytes   int   // of the outputs
	refused error // the first
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

// Client returns the store's client, for reads. They are not in the transaction: repeat what
// you rely on as conditions.
func (t *Tx) Client() *dynamodb.Client { return t.store.client }

// add takes an operation, or says why the transaction cannot have it.
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

// refuse compares an operation with those before.
func (t *Tx) refuse(ctx context.Context, i types.TransactWriteItem) error {
	table, key, put := target(i)
	switch {
	case table == t.store.table || table == t.store.contents:
		return fmt.Errorf("%w: %s", ErrOwnTable, table)
	case len(t.items)+len(t.outputs) == MaxOperations:
		return ErrTooMany
	}
	same := func(o types.TransactWriteItem) bool { other, _, _ := target(o); return other == table }
	if !slices.ContainsFunc(t.items, same) {
		return nil
	}
	names, err := t.store.keyNames(ctx, table)
	if err != nil {
		return err
	}
	if put {
		key = only(key, names)
	}
	for _, other := range t.items {
		has, otherKey, put := target(other)
		if put {
			otherKey = only(otherKey, names)
		}
		if has == table && equal(key, otherKey) {
			return fmt.Errorf("%w: %s in table %s: make one operation of both", ErrSameItem, shown(key), table)
		}
	}
	return nil
}

// end takes no more operations, and returns those that were taken and the first refusal.
func (t *Tx) end() (refused error, items []types.TransactWriteItem, outputs []emitted) { //nolint:revive,staticcheck // it is no error of this call
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.refused, t.items, t.outputs
}

// target returns the name of an operation's table and the key of its item; with put, all of it.
func target(i types.TransactWriteItem) (table string, key item, put bool) {
	var name *string
	switch {
	case i.Put != nil:
		name, key, put = i.Put.TableName, i.Put.Item, true
	case i.Update != nil:
		name, key = i.Update.TableName, i.Update.Key
	case i.Delete != nil:
		name, key = i.Delete.TableName, i.Delete.Key
	case i.ConditionCheck != nil:
		name, key = i.ConditionCheck.TableName, i.ConditionCheck.Key
	}
	if name == nil {
		return "", key, put
	}
	return (*name)[strings.LastIndex(*name, "/")+1:], key, put // of an ARN
}

func only(i item, names []string) item {
	key := make(item, len(names))
	for _, name := range names {
		key[name] = i[name]
	}
	return key
}

func equal(a, b item) bool {
	if len(a) != len(b) {
		return false
	}
	for name, value := range a {
		if scalar(value) != scalar(b[name]) {
			return false
		}
	}
	return true
}

// scalar returns the value of a key's attribute. Two forms of one number are the same.
func scalar(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return "S" + v.Value
	case *types.AttributeValueMemberB:
		return "B" + string(v.Value)
	case *types.AttributeValueMemberN:
		return "N" + canonical(v.Value)
	}
	return "?" // no key has it
}

func shown(key item) string {
	values := make(map[string]string, len(key))
	for name, value := range key {
		values[name] = strings.ToValidUTF8(scalar(value)[1:], "?")
	}
	text, _ := json.Marshal(values) //nolint:errchkjson // of strings
	return string(text)
}

// keySchemas are the names of the attributes of keys, by table.
type keySchemas struct {
	mu    sync.Mutex
	names map[string][]string
}

// keyNames asks for the key of a table, once: only that tells which item a Put writes.
func (s *Store) keyNames(ctx context.Context, table string) ([]string, error) {
	s.schemas.mu.Lock()
	defer s.schemas.mu.Unlock()
	if names, ok := s.schemas.names[table]; ok {
		return names, nil
	}
	out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return nil, fmt.Errorf("dynamodb: the key of table %s cannot be read, so that two operations on it cannot be told apart: %w", table, err)
	}
	var names []string
	for _, k := range out.Table.KeySchema {
		names = append(names, *k.AttributeName)
	}
	s.schemas.names[table] = names
	return names, nil
}
