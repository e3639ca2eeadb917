package dynamodb

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Steps are in the partition of their message, behind its row. They have the number of their failure;
// steps with another number were left behind.

const stepPrefix = 1

// RecordStep implements stores.LeaseInbox, with a transaction that checks the lease.
func (s *Store) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	if _, err := s.known.Known(l.Key); err != nil {
		return err
	}
	s.leases.hasSteps(l.Key, l.Version) // the answer may be lost
	n, revision := sqlstore.ParseVersion(l.Version)
	i := messageKey(l.Key)
	i["sk"], i["of"], i["res"] = bin(append([]byte{stepPrefix}, step.Name...)), num(n), bin(append([]byte{}, step.Result...))
	_, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Update: &types.Update{
			TableName: &s.table, Key: messageKey(l.Key), UpdateExpression: aws.String("SET #stp = :yes"),
			ConditionExpression:      aws.String("#num = :num AND #rev = :rev AND #st = :st AND #hld = :hld"),
			ExpressionAttributeNames: map[string]string{"#stp": "stp", "#num": "num", "#rev": "rev", "#st": "st", "#hld": "hld"},
			ExpressionAttributeValues: item{
				":yes": &types.AttributeValueMemberBOOL{Value: true}, ":num": num(n), ":rev": num(revision),
				":st": num(int64(stores.StatusPending)), ":hld": str(l.Holder),
			},
		}},
		{Put: &types.Put{TableName: &s.table, Item: i}},
	}})
	if canceled, ok := errors.AsType[*types.TransactionCanceledException](err); ok && reasonOf(canceled.CancellationReasons[0]) == "ConditionalCheckFailed" {
		return fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

// follow marks a row if the holder of the lease may have recorded a step since the row was read.
func (r *row) follow(seen *row) {
	r.steps = r.steps || seen != nil && seen.holder != "" && r.number != 0
}

// Steps implements stores.LeaseInbox.
func (s *Store) Steps(ctx context.Context, l stores.HeldLease) ([]stores.Step, error) {
	if _, err := s.known.Known(l.Key); err != nil {
		return nil, err
	}
	var (
		steps []stores.Step
		held  bool
	)
	number, _ := sqlstore.ParseVersion(l.Version)
	err := s.query(ctx, partitionQuery(kindMessage, blob(messageKey(l.Key)["pk"])[1:]), func(i item) bool {
		if sk := blob(i["sk"]); sk[0] != stepPrefix { // the row, which comes first
			r := rowOf(i)
			held = r.is(stores.StatusPending) && r.version() == l.Version && r.holder == l.Holder
		} else if integer(i["of"]) == number {
			steps = append(steps, stores.Step{Name: string(sk[1:]), Result: blob(i["res"])})
		}
		return held
	})
	if err == nil && !held {
		err = fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	return steps, err
}

// kept returns the deletions of all that is kept of a message besides its row.
func (s *Store) kept(ctx context.Context, key item, r *row) ([]types.TransactWriteItem, error) {
	gone := s.parts(r)
	if !r.steps {
		return gone, nil
	}
	err := s.query(ctx, partitionQuery(kindMessage, blob(key["pk"])[1:]), func(i item) bool {
		if blob(i["sk"])[0] == stepPrefix {
			gone = append(gone, types.TransactWriteItem{Delete: &types.Delete{TableName: &s.table, Key: item{"pk": i["pk"], "sk": i["sk"]}}})
		}
		return true
	})
	return gone, err
}
