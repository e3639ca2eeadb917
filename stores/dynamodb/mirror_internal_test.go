package dynamodb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the suite reads what is committed by SQL

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/storetest"
)

// mirror shows the tables to the suite as those of the SQL stores: before each query it copies
// all items to a database in memory, and what the suite changes there it changes here.
type mirror struct {
	tb       testing.TB
	server   *testenv.DynamoDBServer
	endpoint string
	store    *Store // of its own
	effects  string // table
	mu       sync.Mutex
	db       *sql.DB
}

func newMirror(tb testing.TB, server *testenv.DynamoDBServer) *mirror {
	tb.Helper()
	config := server.Config(tb)
	prefix := "t" + uuid.NewString() + "_"
	store, err := New(tb.Context(), Config{AWS: &config, TablePrefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	m := &mirror{tb: tb, server: server, endpoint: server.Endpoint(), store: store, effects: prefix + "effect"}
	if m.db, err = sql.Open("sqlite", ":memory:"); err != nil {
		tb.Fatal(err)
	}
	m.db.SetMaxOpenConns(1)
	createTable(tb, store.client, m.effects, "id")
	tb.Cleanup(func() {
		m.db.Close()
		for _, name := range []string{m.effects, store.table, store.contents} {
			_, _ = store.client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name})
		}
		_ = store.Close()
	})
	return m
}

// createTable makes a table with a string as its key.
func createTable(tb testing.TB, client *dynamodb.Client, name, attribute string) {
	tb.Helper()
	_, err := client.CreateTable(tb.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &attribute, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &attribute, KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func (m *mirror) admin() *sql.DB {
	admin := sql.OpenDB(connector{m})
	m.tb.Cleanup(func() { admin.Close() })
	return admin
}

// scan reads a whole table, nil if there is none.
func (m *mirror) scan(ctx context.Context, table string, yield func(item) error) (found bool, err error) {
	in := &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)}
	for {
		out, err := m.store.client.Scan(ctx, in)
		if codeOf(err) == "ResourceNotFoundException" {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, i := range out.Items {
			if err := yield(i); err != nil {
				return true, err
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return true, nil
		}
	}
}

var mirrored = map[string]string{
	"millpond_consumer":   "id INTEGER, service TEXT, handler TEXT, topics TEXT",
	"millpond_inbox":      "consumer INTEGER, message_id BLOB, status INTEGER, fingerprint BLOB, traceparent BLOB, completed_at INTEGER",
	"millpond_failure":    "number INTEGER, revision INTEGER, consumer INTEGER, message_id BLOB, status INTEGER, placement INTEGER, content INTEGER, presumed BOOLEAN, reserved BOOLEAN, attempts INTEGER, uncounted INTEGER, redrives INTEGER, due_at INTEGER, class TEXT, cause TEXT, error TEXT, history TEXT, topic TEXT, coordinates TEXT, order_key BLOB, uuid BLOB, codec TEXT, metadata BLOB, facts BLOB, payload BLOB",
	"millpond_quarantine": "id INTEGER, consumer INTEGER, message_id BLOB, fingerprint BLOB, existing BLOB, reason TEXT, detail TEXT, topic TEXT, coordinates TEXT, uuid BLOB, codec TEXT, one_way BOOLEAN, metadata BLOB, facts BLOB, payload BLOB, seen INTEGER, status TEXT",
	"millpond_audit":      "id INTEGER, verb TEXT, actor TEXT, reason TEXT",
	"millpond_once":       "consumer INTEGER, message_id BLOB, name TEXT, at INTEGER, result BLOB",
	"millpond_outbox":     outputColumns, "millpond_outbox_history": outputColumns, "millpond_outbox_failed": outputColumns,
	"millpond_schema": "version INTEGER, compatible INTEGER, name TEXT",
}

const outputColumns = "id INTEGER, message_id BLOB, content BLOB"

var outputTables = map[byte]string{kindOutput: "millpond_outbox", kindPublished: "millpond_outbox_history", kindFailed: "millpond_outbox_failed"}

// refresh copies all that is committed.
func (m *mirror) refresh(ctx context.Context) error {
	for name, columns := range mirrored {
		if _, err := m.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name+"; CREATE TABLE "+name+" ("+columns+")"); err != nil {
			return err
		}
	}
	insert := func(table string, values ...any) error {
		_, err := m.db.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
		return err
	}
	contents := make(map[string][]byte)
	if _, err := m.scan(ctx, m.store.contents, func(i item) error {
		if table := outputTables[blob(i["pk"])[0]]; table != "" {
			return insert(table, integer(i["num"]), blob(i["mid"]), blob(i["b"]))
		}
		name := string(blob(i["pk"])[1:])
		contents[name] = append(contents[name], blob(i["b"])...)
		return nil
	}); err != nil {
		return err
	}
	found, err := m.scan(ctx, m.store.table, func(i item) error {
		r := rowOf(i)
		pk := blob(i["pk"])
		var metadata, facts, payload []byte
		if r.chunks > 0 {
			k := unpack(contents[string(r.contentID)])
			metadata, _ = sqlstore.EncodeMetadata(k.metadata)
			facts, _ = sqlstore.EncodeFacts(k.facts)
			payload = k.payload
		}
		consumerIn := func() int64 { return int64FromKey(pk[1:9]) }
		switch pk[0] {
		case kindConsumer:
			topics, _ := json.Marshal(topicsOf(i))
			return insert("millpond_consumer", int64FromKey(blob(i["sk"])), text(i["svc"]), text(i["hdl"]), string(topics))
		case kindSchema:
			return insert("millpond_schema", integer(i["ver"]), integer(i["cmp"]), "")
		case kindAudit:
			return insert("millpond_audit", integer(i["num"]), text(i["vrb"]), text(i["act"]), text(i["rsn"]))
		case kindQuarantine:
			return insert("millpond_quarantine", r.number, consumerIn(), r.id, r.fingerprint, r.existing, r.reason, r.detail, r.topic, r.coordinates,
				r.uuid, r.codec, r.oneWay, metadata, facts, payload, r.seen, r.state)
		case kindMessage:
			if sk := blob(i["sk"]); sk[0] == stepPrefix {
				return insert("millpond_once", consumerIn(), idOf(i), string(sk[1:]), nil, blob(i["res"]))
			}
			if !r.known() {
				return nil
			}
			var completed any
			if r.completedAt != 0 {
				completed = r.completedAt
			}
			if err := insert("millpond_inbox", consumerIn(), idOf(i), r.status, r.fingerprint, r.trace, completed); err != nil || r.number == 0 {
				return err
			}
			var due any
			if r.due != 0 {
				due = r.due
			}
			history := "[]"
			if len(r.history) > 0 {
				history = string(r.history)
			}
			return insert("millpond_failure", r.number, r.revision, consumerIn(), idOf(i), r.status, r.placement, r.content, r.presumed, r.reserved,
				r.attempts, r.uncounted, r.redrives, due, r.class, r.cause, r.failure, history, r.topic, r.coordinates, r.orderKey, r.uuid, r.codec, metadata, facts, payload)
		}
		return nil
	})
	if err == nil && !found {
		for name := range mirrored {
			if _, err := m.db.ExecContext(ctx, "DROP TABLE "+name); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	if _, err := m.db.ExecContext(ctx, "DELETE FROM "+storetest.EffectTable); err != nil {
		return nil //nolint:nilerr // it is not made yet
	}
	_, err = m.scan(ctx, m.effects, func(i item) error {
		return insert(storetest.EffectTable, text(i["key"]), text(i["label"]), integer(i["run"]))
	})
	return err
}

func int64FromKey(b []byte) (n int64) {
	for _, one := range b {
		n = n<<8 | int64(one)
	}
	return n
}

var kindOf = map[string]byte{
	"millpond_inbox": kindMessage, "millpond_failure": kindMessage, "millpond_quarantine": kindQuarantine, "millpond_consumer": kindConsumer,
	"millpond_outbox": kindOutput,
}

var (
	deletes = regexp.MustCompile(`^DELETE FROM (\w+)$`)
	drops   = regexp.MustCompile(`^DROP TABLE (millpond_\w+)$`)
	spoils  = regexp.MustCompile(`^UPDATE millpond_failure SET metadata = payload WHERE number = (\d+)$`)
	steps   = regexp.MustCompile(`^INSERT INTO millpond_once (?s:.*) WHERE f.number = (\d+)$`)
	renames = regexp.MustCompile(`^UPDATE millpond_consumer SET handler = '(.*)'$`)
	newer   = regexp.MustCompile(`^INSERT INTO millpond_schema .* VALUES \((\d+), (\d+),`)
)

// exec carries out a statement of the suite; handled is false for those about its own tables.
func (m *mirror) exec(ctx context.Context, statement string) (handled bool, err error) {
	client, table := m.store.client, m.store.table
	if strings.HasPrefix(statement, "aws dynamodb ") {
		return true, m.commands(ctx, statement)
	}
	if match := deletes.FindStringSubmatch(statement); match != nil {
		if match[1] == storetest.EffectTable {
			_, err = m.scan(ctx, m.effects, func(i item) error {
				_, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &m.effects, Key: item{"id": i["id"]}})
				return err
			})
			return true, err
		}
		if match[1] == "millpond_outbox" {
			table = m.store.contents
		}
		_, err = m.scan(ctx, table, func(i item) error {
			if blob(i["pk"])[0] != kindOf[match[1]] {
				return nil
			}
			_, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table, Key: item{"pk": i["pk"], "sk": i["sk"]}})
			return err
		})
		return true, err
	}
	if drops.MatchString(statement) {
		_, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
		if codeOf(err) == "ResourceNotFoundException" {
			err = nil
		}
		return true, err
	}
	if match := spoils.FindStringSubmatch(statement); match != nil {
		return true, m.kept(ctx, match[1], m.spoil)
	}
	if match := steps.FindStringSubmatch(statement); match != nil {
		return true, m.kept(ctx, match[1], m.step)
	}
	if match := renames.FindStringSubmatch(statement); match != nil {
		_, err = m.scan(ctx, table, func(i item) error {
			if blob(i["pk"])[0] != kindConsumer {
				return nil
			}
			i["hdl"] = str(match[1])
			return m.putItem(ctx, table, i)
		})
		return true, err
	}
	if match := newer.FindStringSubmatch(statement); match != nil {
		i := key(kindSchema, nil, nil)
		i["ver"], i["cmp"] = &types.AttributeValueMemberN{Value: match[1]}, &types.AttributeValueMemberN{Value: match[2]}
		return true, m.putItem(ctx, table, i)
	}
	return false, nil
}

// kept calls change with the item of a message, and with what is kept of it.
func (m *mirror) kept(ctx context.Context, number string, change func(context.Context, item, kept) error) error {
	_, err := m.scan(ctx, m.store.table, func(i item) error {
		if blob(i["pk"])[0] != kindMessage || strconv.FormatInt(integer(i["num"]), 10) != number {
			return nil
		}
		k, err := m.store.load(ctx, rowOf(i))
		if err != nil {
			return err
		}
		return change(ctx, i, k)
	})
	return err
}

// spoil makes what is kept unreadable.
func (m *mirror) spoil(ctx context.Context, i item, k kept) error {
	part := key(kindContent, rowOf(i).contentID, number8(0))
	facts, _ := sqlstore.EncodeFacts(k.facts)
	packed := append([]byte{1, byte(len(k.payload))}, k.payload...)
	packed = append(append(append(packed, byte(len(facts))), facts...), k.payload...)
	part["b"] = bin(packed)
	return m.putItem(ctx, m.store.contents, part)
}

// step writes a step, with the payload as its result.
func (m *mirror) step(ctx context.Context, i item, k kept) error {
	i["stp"] = &types.AttributeValueMemberBOOL{Value: true}
	step := item{"pk": i["pk"], "sk": bin(append([]byte{stepPrefix}, "step"...)), "of": i["num"], "res": bin(k.payload)}
	return errors.Join(m.putItem(ctx, m.store.table, i), m.putItem(ctx, m.store.table, step))
}

func (m *mirror) putItem(ctx context.Context, table string, i item) error {
	_, err := m.store.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: i})
	return err
}

var command = regexp.MustCompile(`(?m)^aws dynamodb (\S+) --cli-input-json '([^']*)'$`)

// commands does what the AWS command line would.
func (m *mirror) commands(ctx context.Context, commands string) error {
	operations := map[string]string{"create-table": "CreateTable", "update-time-to-live": "UpdateTimeToLive", "put-item": "PutItem"}
	for _, c := range command.FindAllStringSubmatch(commands, -1) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.endpoint, strings.NewReader(c[2]))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/x-amz-json-1.0")
		request.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operations[c[1]])
		request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=millpond/20260101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", c[1], response.Status, body)
		}
	}
	return nil
}

// The mirror as a driver.
type connector struct{ *mirror }

func (c connector) Connect(context.Context) (driver.Conn, error) { return conn(c), nil }
func (c connector) Driver() driver.Driver                        { return nil }

type conn struct{ *mirror }

func (conn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (conn) Close() error                        { return nil }
func (c conn) Begin() (driver.Tx, error)         { return c, nil }
func (conn) Commit() error                       { return nil }
func (conn) Rollback() error                     { return nil }
func (conn) Ping(context.Context) error          { return nil }

func (c conn) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	handled, err := c.exec(ctx, query)
	if !handled && err == nil {
		_, err = c.db.ExecContext(ctx, query)
	}
	return driver.RowsAffected(0), err
}

func (c conn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	rows, err := c.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	read := &readRows{}
	if read.columns, err = rows.Columns(); err != nil {
		return nil, err
	}
	for rows.Next() {
		values, into := make([]any, len(read.columns)), make([]any, len(read.columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		read.rows = append(read.rows, values)
	}
	return read, rows.Err()
}

type readRows struct {
	columns []string
	rows    [][]any
}

func (r *readRows) Columns() []string { return r.columns }
func (r *readRows) Close() error      { return nil }
func (r *readRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	for i, v := range r.rows[0] {
		dest[i] = v
	}
	r.rows = r.rows[1:]
	return nil
}

var _ stores.Store = (*Store)(nil)
