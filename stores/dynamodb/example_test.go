package dynamodb_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
)

// The credentials come from the SDK's default chain.
func ExampleOpen() {
	ctx := context.Background()
	store, err := dynamodb.Open(ctx, "dynamodb://?region=eu-central-1&retention=720h")
	must(err)
	defer store.Close()
	_, err = store.Migrate(ctx)
	must(err)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "stock"})
	must(err)
	_ = inbox.Middleware // for Router.AddMiddleware
}

// A handler adds what it writes to the transaction, which the inbox sends.
func ExampleHandler() {
	h := dynamodb.Handler(func(ctx context.Context, tx *dynamodb.Tx, msg *message.Message) error {
		return tx.Update(ctx, types.Update{
			TableName:                 aws.String("stock"),
			Key:                       map[string]types.AttributeValue{"sku": &types.AttributeValueMemberS{Value: string(msg.Payload)}},
			UpdateExpression:          aws.String("ADD reserved :one"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
		})
	})
	_ = h // for Router.AddConsumerHandler
}

// A program that is no handler writes and publishes in a transaction of its own.
func ExampleStore_Transact() {
	ctx := context.Background()
	store, err := dynamodb.Open(ctx, "dynamodb://?region=eu-central-1")
	must(err)
	placed := types.Put{TableName: aws.String("order"), Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "1"}}}
	err = store.Transact(ctx, func(tx *dynamodb.Tx) error {
		if err := tx.Put(ctx, placed); err != nil {
			return err
		}
		return dynamodb.NewPublisher(tx, stores.PublisherConfig{}).Publish("orders", message.NewMessage("order-1", []byte("{}")))
	})
	must(err)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
