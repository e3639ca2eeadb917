package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// policy is an identity-based policy of AWS.
type policy struct {
	Version   string       `json:"Version"`
	Statement []permission `json:"Statement"`
}

type permission struct {
	Sid       string         `json:"Sid"`
	Effect    string         `json:"Effect"`
	Action    []string       `json:"Action"`
	Resource  []string       `json:"Resource"`
	Condition map[string]any `json:"Condition,omitempty"`

	table string
}

const actionPrefix = "dynamodb:"

// permissions returns what a role needs.
func (s *Store) permissions(role stores.Role) []permission {
	allow := func(sid, table string, actions ...string) permission {
		p := permission{Sid: sid, Effect: "Allow", Resource: []string{"arn:aws:dynamodb:*:*:table/" + table, "arn:aws:dynamodb:*:*:table/" + table + "/index/*"}, table: table}
		for _, a := range actions {
			p.Action = append(p.Action, actionPrefix+a)
		}
		return p
	}
	examines := []string{"DescribeTable", "DescribeTimeToLive", "DescribeContinuousBackups"}
	reads := slices.Concat(examines, []string{"GetItem", "BatchGetItem", "Query"})
	writes := []string{"PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"}
	switch role {
	case stores.RoleMigrator:
		return []permission{
			allow("Tables", s.table, slices.Concat(examines, []string{"CreateTable", "UpdateTable", "UpdateTimeToLive", "GetItem", "PutItem"})...),
			allow("Content", s.contents, slices.Concat(examines, []string{"CreateTable", "UpdateTimeToLive"})...),
		}
	case stores.RoleRuntime, stores.RoleOperator:
		return []permission{
			allow("Inbox", s.table, slices.Concat(reads, writes)...),
			allow("Content", s.contents, slices.Concat(examines, []string{"GetItem", "Query", "BatchWriteItem"}, writes)...),
		}
	case stores.RoleReadOnly:
	}
	listed := allow("Outputs", s.contents, "Query")
	listed.Condition = map[string]any{
		"ForAllValues:StringEquals": map[string]any{"dynamodb:Attributes": bareOutput},
		"StringEquals":              map[string]any{"dynamodb:Select": types.SelectSpecificAttributes},
	}
	return []permission{allow("Inbox", s.table, reads...), allow("Content", s.contents, examines...), listed}
}

// Grants implements stores.Granter. It returns the role's policy for its tables in every region and
// account. The runtime role also needs rights on the handlers' own tables. The readonly role lists
// outputs without their content.
func (s *Store) Grants(role stores.Role) []string {
	text, _ := json.MarshalIndent(policy{Version: "2012-10-17", Statement: s.permissions(role)}, "", "  ") //nolint:errchkjson // of texts
	return []string{string(text)}
}

// probes are requests that each need one right and change nothing.
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

// grants checks that the account has the rights of its role, and for readonly no others.
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
		add(stores.SeverityWarning, fmt.Sprintf("the account has %s, which the role %s does not need", strings.Join(more, ", "), x.Role), "whoever has its credentials can read or change messages", "the policy that millpond roles prints")
	}
	return nil
}
