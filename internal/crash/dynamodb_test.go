package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/dynamodb"
)

// DynamoDB has no sessions, no statements of handlers and no commit of theirs: a handler adds
// operations, which the attempt sends. Its clock is days ahead of all workers.

// serviceAhead is by how much.
const serviceAhead = 3 * 24 * time.Hour

// dynamoDialect leaves out what a handler can do to a session or by a statement alone.
var dynamoDialect = dialect{without: []conduct{settings, commits, rollback, defines, leaks}}

// newDynamoDB has tables of its own on the server that all tests share, behind a proxy.
func newDynamoDB(t *testing.T) *system {
	t.Helper()
	server := testenv.DynamoDB(t)
	config := server.Config(t)
	prefix := "t" + uuid.NewString() + "_"
	store, err := dynamodb.New(t.Context(), dynamodb.Config{AWS: &config, TablePrefix: prefix, AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := &itemTables{client: awsdynamodb.NewFromConfig(config), prefix: prefix}
	if err := seen.createShop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seen.dropAll(t) })
	proxied := startRequestProxy(t, server.Endpoint(), prefix)
	d := dynamoDialect
	d.endSessions = func(context.Context, *sql.DB) error { proxied.CutAll(); return nil }
	return &system{name: "dynamodb", url: proxied.URL(), observer: seen, proxy: proxied, dialect: d}
}

// shopTable is the service's table.
func shopTable(prefix string) string { return prefix + "shop" }

// Keys of items of the service, or what they begin with.
const (
	effectItem = "effect/" // and anything: nothing keeps an effect from happening twice
	stockItem  = "stock/"  // and consumer and item
	takenItem  = "taken"   // which is there
	parentItem = "parent"  // which is not
)

func (s *itemTables) createShop(ctx context.Context) error {
	table := shopTable(s.prefix)
	_, err := s.client.CreateTable(ctx, &awsdynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("k"), KeyType: types.KeyTypeHash}},
	})
	if err == nil {
		_, err = s.client.PutItem(ctx, &awsdynamodb.PutItemInput{TableName: &table, Item: shopKey(takenItem)})
	}
	return err
}

func (s *itemTables) dropAll(t *testing.T) {
	t.Helper()
	for _, name := range []string{shopTable(s.prefix), s.prefix + "inbox", s.prefix + "content"} {
		if _, err := s.client.DeleteTable(context.WithoutCancel(t.Context()), &awsdynamodb.DeleteTableInput{TableName: &name}); err != nil {
			t.Error(err)
		}
	}
}

func shopKey(k string) attributes { return attributes{"k": text(k)} }

// attributes are those of an item.
type attributes = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// openDynamoDB opens a store whose requests a variant may change.
func openDynamoDB(ctx context.Context, rawURL string, _ int) (*backend, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	prefix, asked := u.Query().Get("prefix"), &requests{client: &http.Client{}}
	store, err := untilUp(ctx, func() (*dynamodb.Store, error) {
		return dynamodb.New(ctx, dynamodb.Config{TablePrefix: prefix, AWS: &aws.Config{
			Region: u.Query().Get("region"), BaseEndpoint: aws.String(u.Query().Get("endpoint")),
			Credentials: credentials.NewStaticCredentialsProvider("millpond", "millpond", ""), HTTPClient: asked,
		}})
	})
	if err != nil {
		return nil, err
	}
	native := func(tx *dynamodb.Tx) transaction { return itemsTx{tx, shopTable(prefix)} }
	return &backend{
		store: store,
		handler: func(f effectFunc) message.NoPublishHandlerFunc {
			return dynamodb.Handler(func(ctx context.Context, tx *dynamodb.Tx, msg *message.Message) error { return f(ctx, native(tx), msg) })
		},
		find: func(ctx context.Context) (transaction, bool) {
			tx, ok := dynamodb.TxFromContext(ctx)
			return native(tx), ok
		},
		service: asked, dialect: dynamoDialect,
		close: func() {},
	}, nil
}

// itemsTx is what a handler adds its operations to.
type itemsTx struct {
	*dynamodb.Tx
	table string
}

var errNoStatement = errors.New("DynamoDB has no statements")

// exec adds the operation that does the same as one of the statements that all systems know.
func (t itemsTx) exec(ctx context.Context, query string, args ...any) error {
	switch query {
	case insertEffect:
		effect := shopKey(effectItem + uuid.NewString())
		for i, name := range []string{"consumer", "id", "part", "run", "payload"} {
			effect[name] = text(fmt.Sprint(args[i]))
		}
		return t.Put(ctx, types.Put{TableName: &t.table, Item: effect})
	case sellItem:
		return t.Update(ctx, types.Update{
			TableName: &t.table, Key: shopKey(stockItem + fmt.Sprintf("%s/%d", args...)), UpdateExpression: aws.String("ADD sold :one"),
			ExpressionAttributeValues: attributes{":one": &types.AttributeValueMemberN{Value: "1"}},
		})
	case takeAgain:
		return t.Put(ctx, types.Put{TableName: &t.table, Item: shopKey(takenItem), ConditionExpression: aws.String("attribute_not_exists(k)")})
	case breakDeferred:
		return t.Check(ctx, types.ConditionCheck{TableName: &t.table, Key: shopKey(parentItem), ConditionExpression: aws.String("attribute_exists(k)")})
	}
	return fmt.Errorf("%w: %s", errNoStatement, query)
}

func (t itemsTx) ask(_ context.Context, query string) (string, error) {
	return "", fmt.Errorf("%w: %s", errNoStatement, query)
}

func (t itemsTx) finish(context.Context, bool) error { return errNoStatement }

func (t itemsTx) linger(ctx context.Context) error {
	pause.Sleep(ctx, 50*time.Millisecond)
	return ctx.Err()
}

// detour reads outside of the transaction, and repeats as a condition what it relies on.
func (t itemsTx) detour(ctx context.Context) error {
	if _, err := t.Client().GetItem(ctx, &awsdynamodb.GetItemInput{TableName: &t.table, Key: shopKey(takenItem), ConsistentRead: aws.Bool(true)}); err != nil {
		return err
	}
	return t.Check(ctx, types.ConditionCheck{TableName: &t.table, Key: shopKey(takenItem), ConditionExpression: aws.String("attribute_exists(k)")})
}

// fail changes an item twice, which one transaction cannot.
func (t itemsTx) fail(ctx context.Context) error {
	other := shopKey("twice")
	return errors.Join(t.Put(ctx, types.Put{TableName: &t.table, Item: other}), t.Put(ctx, types.Put{TableName: &t.table, Item: other}))
}
