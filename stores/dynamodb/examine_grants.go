package dynamodb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// probes are requests that need one right each and change nothing.
func (x *examining) probes(table *string) map[string]func(context.Context) error {
	none := key(kindSchema, nil, []byte("examined")) // there is no such item
	never := aws.String("attribute_exists(pk)")
	ignore := func(_ any, err error) error { return err }
	return map[string]func(context.Context) error{
		"GetItem": func(ctx context.Context) error { _, err := x.getFrom(ctx, *table, none); return err },
		"BatchGetItem": func(ctx context.Context) error {
			return ignore(x.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*table: {Keys: []item{none}}}}))
		},
		"Query": func(ctx context.Context) error {
			columns, names := bareNames()
			return ignore(x.client.Query(ctx, &dynamodb.QueryInput{
				TableName: table, KeyConditionExpression: aws.String("pk = :pk"), ExpressionAttributeValues: item{":pk": none["sk"]},
				Select: types.SelectSpecificAttributes, ProjectionExpression: &columns, ExpressionAttributeNames: names,
			}))
		},
		"PutItem": func(ctx context.Context) error {
			return ignore(x.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: none, ConditionExpression: never}))
		},
		"UpdateItem": func(ctx context.Context) error {
			return ignore(x.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: table, Key: none, ConditionExpression: never}))
		},
		"DeleteItem": func(ctx context.Context) error {
			return ignore(x.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: table, Key: none, ConditionExpression: never}))
		},
		"ConditionCheckItem": func(ctx context.Context) error {
			return ignore(x.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
				{ConditionCheck: &types.ConditionCheck{TableName: table, Key: none, ConditionExpression: never}},
			}}))
		},
		"BatchWriteItem": func(ctx context.Context) error {
			gone := types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: none}}
			return ignore(x.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{*table: {gone}}}))
		},
	}
}

// grants checks the rights that the role needs, and for readonly also those that it should not have.
func (x *examining) grants(ctx context.Context, add sqlstore.Adder) error {
	var lacks, more []string
	needs := make(map[string]bool)
	for _, p := range x.permissions(x.Role) {
		for _, action := range p.Action {
			needs[action+p.table] = true
		}
	}
	for _, table := range []string{x.table, x.contents} {
		for name, probe := range x.probes(&table) {
			needed := needs[actionPrefix+name+table]
			if !needed && x.Role != stores.RoleReadOnly {
				continue
			}
			switch err := probe(ctx); {
			case denied(err) && needed:
				lacks = append(lacks, actionPrefix+name+" on "+table)
			case !denied(err) && !needed && ctx.Err() == nil:
				more = append(more, actionPrefix+name+" on "+table)
			}
		}
	}
	slices.Sort(lacks)
	slices.Sort(more)
	if len(lacks) > 0 {
		add(stores.SeverityWarning, fmt.Sprintf("the account lacks %s, which the role %s needs", strings.Join(lacks, ", "), x.Role), "what needs it fails", "the policy that millpond roles prints")
	}
	if len(more) > 0 {
		add(stores.SeverityWarning, fmt.Sprintf("the account has %s, which the role %s does not need", strings.Join(more, ", "), x.Role), "who has its credentials can change messages, or read them", "the policy that millpond roles prints")
	}
	return nil
}
