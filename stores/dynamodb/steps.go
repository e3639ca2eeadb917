package dynamodb

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Steps are in the partition of their message, after its row. They carry the number of their
// failure; steps with another number are leftovers.

const stepPrefix = 1

// RecordStep implements stores.LeaseInbox, with a transaction that checks the lease.
func (s *Store) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	if _, err := s.known.Known(l.Key); err != nil {
		return err
	}
	s.leases.hasSteps(l.Key, l.Version) // even if the answer is lost
	values, i := holder(l), messageKey(l.Key)
	i["sk"], i["of"], i["res"], i["own"] = bin(append([]byte{stepPrefix}, step.Name...)), values[":num"], bin(append([]byte{}, step.Result...)), bin(newOwn())
	values[":yes"] = yes
	of := []types.TransactWriteItem{{Update: &types.Update{
		TableName: &s.table, Key: messageKey(l.Key), UpdateExpression: aws.String("SET #stp = :yes"), ConditionExpression: aws.String(holding),
		ExpressionAttributeNames: named("#stp", holding), ExpressionAttributeValues: values,
	}}}
	end, err := s.send(ctx, write{put: &types.Put{TableName: &s.table, Item: i}, others: of, guard: guard{none: true}})
	if end != committed && conditionOf(err, of) != nil {
		end = declined
	}
	return s.outcome(ctx, end, err)
}

// follow sets steps in a row if the holder of the lease may have recorded a step since the row was
// read.
func (r *row) follow(seen *row) {
	if seen != nil && seen.holder != "" && r.number != 0 {
		r.steps = true
	}
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
		if sk := blob(i["sk"]); sk[0] != stepPrefix { // the row itself, which comes first
			held = rowOf(i).holds(l)
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

// kept returns the deletions of everything that is kept of a message, except its row.
func (s *Store) kept(ctx context.Context, key item, r *row) ([]types.TransactWriteItem, error) {
	gone := s.parts(r)
	if !r.steps {
		return gone, nil
	}
	err := s.query(ctx, partitionQuery(kindMessage, blob(key["pk"])[1:]), func(i item) bool {
		if blob(i["sk"])[0] == stepPrefix {
			gone = append(gone, deletion(s.table, keyOf(i), nil))
		}
		return true
	})
	return gone, err
}
