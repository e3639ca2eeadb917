package dynamodb_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/stores/dynamodb"
)

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
