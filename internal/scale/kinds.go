package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
	"github.com/millpond-go/millpond/stores/postgres"
)

// kind is one way to keep effects.
type kind struct {
	servers int
	inbox   bool
	less    int // messages, by this factor
	serve   func(ctx context.Context, address string, besides func(context.Context)) (*serving, error)
	create  func(ctx context.Context, address string) error
	count   func(ctx context.Context, address string) (distinct, all int, err error)
}

const (
	withoutInbox  = "PostgreSQL without an inbox"
	onePostgres   = "1 PostgreSQL"
	twoPostgres   = "2 PostgreSQL"
	onDynamoLocal = "DynamoDB Local"
)

func kindNames() []string { return []string{withoutInbox, onePostgres, twoPostgres, onDynamoLocal} }

var kinds map[string]kind

func init() {
	kinds = map[string]kind{
		withoutInbox:  {servers: 1, less: 1, serve: servePlainly, create: createPostgres, count: countPostgres},
		onePostgres:   {servers: 1, less: 1, inbox: true, serve: servePostgres, create: createPostgres, count: countPostgres},
		twoPostgres:   {servers: 2, less: 1, inbox: true, serve: servePostgres, create: createPostgres, count: countPostgres},
		onDynamoLocal: {servers: 1, less: 5, inbox: true, serve: serveDynamoDB, create: createDynamoDB, count: countDynamoDB},
	}
}

// serving is a handler with its inbox, if it has one.
type serving struct {
	handler message.NoPublishHandlerFunc
	inbox   message.HandlerMiddleware
	close   func()
}

func behindInbox(store stores.Store, handler message.NoPublishHandlerFunc, end func()) (*serving, error) {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "scale", Logger: quiet})
	if err != nil {
		return nil, err
	}
	return &serving{handler: handler, inbox: inbox.Middleware, close: func() { _ = store.Close(); end() }}, nil
}

const insertEffect = "INSERT INTO effect (id) VALUES ($1)"

func pool(ctx context.Context, address string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	c.MaxConns = inFlight + 2
	return pgxpool.NewWithConfig(ctx, c)
}

func servePlainly(ctx context.Context, address string, besides func(context.Context)) (*serving, error) {
	p, err := pool(ctx, address)
	if err != nil {
		return nil, err
	}
	return &serving{close: p.Close, handler: func(msg *message.Message) error {
		return pgx.BeginFunc(msg.Context(), p, func(tx pgx.Tx) error {
			besides(msg.Context())
			_, err := tx.Exec(msg.Context(), insertEffect, msg.UUID)
			return err
		})
	}}, nil
}

func servePostgres(ctx context.Context, address string, besides func(context.Context)) (*serving, error) {
	p, err := pool(ctx, address)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(p, postgres.Config{})
	if err != nil {
		return nil, err
	}
	return behindInbox(store, postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		besides(ctx)
		_, err := tx.Exec(ctx, insertEffect, msg.UUID)
		return err
	}), p.Close)
}

// createPostgres makes what handlers write, without a unique key: what happened twice is there
// twice.
func createPostgres(ctx context.Context, address string) error {
	store, err := postgres.Open(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	_, err = store.Pool().Exec(ctx, "CREATE TABLE effect (id text NOT NULL)")
	return err
}

func countPostgres(ctx context.Context, address string) (distinct, all int, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT count(DISTINCT id), count(*) FROM effect").Scan(&distinct, &all)
	return distinct, all, err
}

// The address of a DynamoDB store has its endpoint and the prefix of its tables.

func awsConfig(ctx context.Context, endpoint string) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithRegion("eu-central-1"), config.WithBaseEndpoint(endpoint),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
}

func openDynamoDB(ctx context.Context, address string) (*dynamodb.Store, *awsdynamodb.Client, *string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, nil, err
	}
	prefix := u.Query().Get("prefix")
	u.RawQuery = ""
	c, err := awsConfig(ctx, u.String())
	if err != nil {
		return nil, nil, nil, err
	}
	store, err := dynamodb.New(ctx, dynamodb.Config{AWS: &c, Endpoint: u.String(), TablePrefix: prefix})
	return store, awsdynamodb.NewFromConfig(c), aws.String(prefix + "effect"), err
}

func serveDynamoDB(ctx context.Context, address string, besides func(context.Context)) (*serving, error) {
	store, _, table, err := openDynamoDB(ctx, address)
	if err != nil {
		return nil, err
	}
	return behindInbox(store, dynamodb.Handler(func(ctx context.Context, tx *dynamodb.Tx, msg *message.Message) error {
		besides(ctx)
		return tx.Update(ctx, types.Update{
			TableName: table, Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: msg.UUID}},
			UpdateExpression:          aws.String("ADD runs :one"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
		})
	}), func() {})
}

func createDynamoDB(ctx context.Context, address string) error {
	store, client, table, err := openDynamoDB(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	_, err = client.CreateTable(ctx, &awsdynamodb.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	return err
}

func countDynamoDB(ctx context.Context, address string) (distinct, all int, err error) {
	store, client, table, err := openDynamoDB(ctx, address)
	if err != nil {
		return 0, 0, err
	}
	defer store.Close()
	pages := awsdynamodb.NewScanPaginator(client, &awsdynamodb.ScanInput{TableName: table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, 0, err
		}
		for _, item := range page.Items {
			var runs int
			n, ok := item["runs"].(*types.AttributeValueMemberN)
			if !ok {
				return 0, 0, errors.New("an item has no runs")
			}
			if _, err := fmt.Sscan(n.Value, &runs); err != nil {
				return 0, 0, err
			}
			distinct, all = distinct+1, all+runs
		}
	}
	return distinct, all, nil
}
