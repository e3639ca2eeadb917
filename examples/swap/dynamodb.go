package main

// The service on DynamoDB, without a server of SQL: the handler hands over its writes in place of
// sending statements. Nothing else of the service differs.

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	aws_dynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/stores/dynamodb"
)

// inDynamoDB has two tables: stock, and reservations under random keys, so that an order that is
// reserved twice shows.
type inDynamoDB struct {
	client *aws_dynamodb.Client
	prefix string
}

type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func (d inDynamoDB) handler(w *warehouse) message.NoPublishHandlerFunc {
	return dynamodb.Handler(func(ctx context.Context, tx *dynamodb.Tx, msg *message.Message) error {
		o, err := w.find(msg)
		if err != nil {
			return err
		}
		err = tx.Update(ctx, types.Update{
			TableName: aws.String(d.prefix + "stock"), Key: item{"id": str(o.Article)}, UpdateExpression: aws.String("ADD quantity :taken"),
			ExpressionAttributeValues: item{":taken": number(-o.Quantity)},
		})
		if err != nil {
			return err
		}
		return tx.Put(ctx, types.Put{TableName: aws.String(d.prefix + "reservation"), Item: item{
			"id": str(uuid.NewString()), "order": str(o.ID), "article": str(o.Article), "quantity": number(o.Quantity),
		}})
	})
}

func (d inDynamoDB) prepare(ctx context.Context) error {
	for _, table := range []string{"stock", "reservation"} {
		_, err := d.client.CreateTable(ctx, &aws_dynamodb.CreateTableInput{
			TableName: aws.String(d.prefix + table), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		})
		if err != nil {
			return err
		}
		err = aws_dynamodb.NewTableExistsWaiter(d.client).Wait(ctx, &aws_dynamodb.DescribeTableInput{TableName: aws.String(d.prefix + table)}, time.Minute)
		if err != nil {
			return err
		}
	}
	for _, article := range articles {
		in := &aws_dynamodb.PutItemInput{TableName: aws.String(d.prefix + "stock"), Item: item{"id": str(article), "quantity": number(openingStock)}}
		if _, err := d.client.PutItem(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (d inDynamoDB) read(ctx context.Context, b *books) error {
	err := d.scan(ctx, "reservation", func(i item) {
		o := order{ID: textOf(i["order"]), Article: textOf(i["article"]), Quantity: numberOf(i["quantity"])}
		b.reserved[o.ID] = append(b.reserved[o.ID], o)
	})
	if err != nil {
		return err
	}
	return d.scan(ctx, "stock", func(i item) { b.stock[textOf(i["id"])] = numberOf(i["quantity"]) })
}

func (d inDynamoDB) scan(ctx context.Context, table string, read func(item)) error {
	pages := aws_dynamodb.NewScanPaginator(d.client, &aws_dynamodb.ScanInput{TableName: aws.String(d.prefix + table), ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, i := range page.Items {
			read(i)
		}
	}
	return nil
}

func textOf(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

func numberOf(v types.AttributeValue) int64 {
	n, _ := v.(*types.AttributeValueMemberN)
	if n == nil {
		return 0
	}
	i, _ := strconv.ParseInt(n.Value, 10, 64) // only this example writes it
	return i
}

func (d inDynamoDB) remove(ctx context.Context) error {
	var errs []error
	for _, table := range []string{"stock", "reservation", "inbox", "content"} {
		_, err := d.client.DeleteTable(ctx, &aws_dynamodb.DeleteTableInput{TableName: aws.String(d.prefix + table)})
		if _, missing := errors.AsType[*types.ResourceNotFoundException](err); !missing {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
