package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/stores"
)

// schemaVersion is the version of the newest migration. Programs that know schemaCompatible can use it.
const schemaVersion, schemaCompatible = 1, 1

// The definitions of the tables, for the command line and for Migrate. %[1]s is the table's name.
const tableJSON = `{"TableName": "%[1]s", "BillingMode": "PAY_PER_REQUEST",
 "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "B"}, {"AttributeName": "sk", "AttributeType": "B"},
  {"AttributeName": "dpk", "AttributeType": "S"}, {"AttributeName": "due", "AttributeType": "N"},
  {"AttributeName": "lpk", "AttributeType": "S"}, {"AttributeName": "num", "AttributeType": "N"}],
 "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
 "GlobalSecondaryIndexes": [
  {"IndexName": "due", "KeySchema": [{"AttributeName": "dpk", "KeyType": "HASH"}, {"AttributeName": "due", "KeyType": "RANGE"}], "Projection": {"ProjectionType": "KEYS_ONLY"}},
  {"IndexName": "list", "KeySchema": [{"AttributeName": "lpk", "KeyType": "HASH"}, {"AttributeName": "num", "KeyType": "RANGE"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}]}`

const contentJSON = `{"TableName": "%[1]s", "BillingMode": "PAY_PER_REQUEST",
 "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "B"}, {"AttributeName": "sk", "AttributeType": "B"}],
 "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]}`

const lifeJSON = `{"TableName": "%[1]s", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`

// Migrations implements stores.Migrator, with commands of the AWS command line.
func (s *Store) Migrations() []stores.Migration {
	command := func(name, input, table string) string {
		return "aws dynamodb " + name + " --cli-input-json '" + fmt.Sprintf(input, table) + "'\n"
	}
	return []stores.Migration{{
		Version: 1, Name: "tables",
		SQL: command("create-table", tableJSON, s.table) + command("create-table", contentJSON, s.contents) +
			"aws dynamodb wait table-exists --table-name " + s.table + "\n" +
			"aws dynamodb wait table-exists --table-name " + s.contents + "\n" +
			command("update-time-to-live", lifeJSON, s.table) + command("update-time-to-live", lifeJSON, s.contents) +
			command("put-item", `{"TableName": "%[1]s", "Item": {"pk": {"B": "cw=="}, "sk": {"B": "AA=="}, "ver": {"N": "1"}, "cmp": {"N": "1"}}}`, s.table),
	}}
}

// Applied implements stores.Migrator.
func (s *Store) Applied(ctx context.Context) (int, error) {
	version, _, err := s.schema(ctx)
	if errors.Is(err, stores.ErrNotMigrated) {
		return 0, nil
	}
	return version, err
}

// schema returns the version of the table, and the oldest program that can use it.
func (s *Store) schema(ctx context.Context) (version, compatible int, err error) {
	if s.known.Closed() {
		return 0, 0, stores.ErrClosed
	}
	i, err := s.get(ctx, key(kindSchema, nil, nil))
	return int(integer(i["ver"])), int(integer(i["cmp"])), err
}

// Validate implements stores.Migrator. It refuses a table in several regions, where two deliveries
// of a message could both commit.
func (s *Store) Validate(ctx context.Context) error {
	version, compatible, err := s.schema(ctx)
	switch {
	case err != nil:
		return err
	case version < schemaVersion:
		return fmt.Errorf("dynamodb: %w: the table %s", stores.ErrNotMigrated, s.table)
	case compatible > schemaVersion:
		return fmt.Errorf("dynamodb: %w: the table %s has version %d", stores.ErrSchemaNewer, s.table, version)
	}
	out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
	if err != nil {
		return s.explain(ctx, err)
	}
	if len(out.Table.Replicas) > 0 {
		return fmt.Errorf("dynamodb: the table %s is a global table, and one message could be completed in two regions: use a table in one region for each consumer", s.table)
	}
	return s.clock.check()
}

// Migrate implements stores.Migrator.
func (s *Store) Migrate(ctx context.Context) ([]stores.Migration, error) {
	version, compatible, err := s.schema(ctx)
	switch {
	case err != nil && !errors.Is(err, stores.ErrNotMigrated):
		return nil, err
	case compatible > schemaVersion:
		return nil, fmt.Errorf("dynamodb: %w: the table %s has version %d", stores.ErrSchemaNewer, s.table, version)
	case version >= schemaVersion:
		return nil, nil
	}
	if err := s.createTables(ctx); err != nil {
		return nil, err
	}
	first := key(kindSchema, nil, nil)
	first["ver"], first["cmp"] = num(schemaVersion), num(schemaCompatible)
	_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: first, ConditionExpression: aws.String("attribute_not_exists(pk)")})
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok { // another process was faster
		return nil, nil
	}
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	return s.Migrations(), nil
}

// createTables creates the missing tables, and waits until they can be used.
func (s *Store) createTables(ctx context.Context) error {
	for table, form := range map[string]string{s.contents: contentJSON, s.table: tableJSON} {
		var in dynamodb.CreateTableInput
		if err := json.Unmarshal(fmt.Appendf(nil, form, table), &in); err != nil {
			return fmt.Errorf("dynamodb: %w", err)
		}
		if err := s.createTable(ctx, &in); err != nil {
			return err
		}
		_, err := s.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
			TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)},
		})
		if err != nil && codeOf(err) != "ValidationException" { // it is on already
			return s.explain(ctx, err)
		}
	}
	return nil
}

func (s *Store) createTable(ctx context.Context, table *dynamodb.CreateTableInput) error {
	_, err := s.client.CreateTable(ctx, table)
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return s.explain(ctx, err)
	}
	const patience = 5 * time.Minute
	err = dynamodb.NewTableExistsWaiter(s.client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 100*time.Millisecond, 5*time.Second
	}).
		Wait(ctx, &dynamodb.DescribeTableInput{TableName: table.TableName}, patience)
	if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}
