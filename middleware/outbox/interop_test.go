package outbox_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// topical records what it takes by topic.
type topical struct {
	mu    sync.Mutex
	taken map[string][]*message.Message
}

func (b *topical) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken == nil {
		b.taken = make(map[string][]*message.Message)
	}
	b.taken[topic] = append(b.taken[topic], messages...)
	return nil
}

func (b *topical) Close() error { return nil }

func (b *topical) ids(topic string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range b.taken[topic] {
		ids = append(ids, msg.UUID)
	}
	slices.Sort(ids)
	return ids
}

type eachTopical struct{ *topical }

func (b eachTopical) PublishEach(_ context.Context, topic string, messages ...*message.Message) []error {
	errs := make([]error, len(messages))
	for i, msg := range messages {
		errs[i] = b.Publish(topic, msg)
	}
	return errs
}

// What a forwarder.Publisher of Watermill has put into envelopes is published as it was.
func TestEnvelopesOfTheForwarder(t *testing.T) {
	t.Parallel()
	const own = "envelopes"
	for name, answers := range map[string]func(*topical) message.Publisher{
		"each":  func(b *topical) message.Publisher { return eachTopical{b} },
		"alone": func(b *topical) message.Publisher { return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, b := onSQLite(t), &topical{}
			check(t, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, _ execer) error {
				plain := publisher(stores.PublisherConfig{})
				enveloped := forwarder.NewPublisher(plain, forwarder.PublisherConfig{ForwarderTopic: own})
				mail := message.NewMessage("mail", []byte{0, 255})
				mail.Metadata.Set("name", "Welcome")
				return errors.Join(enveloped.Publish("orders", message.NewMessage("1", nil), message.NewMessage("2", nil)), enveloped.Publish("mails", mail),
					plain.Publish("orders", message.NewMessage("3", nil)), plain.Publish(own, message.NewMessage("none", []byte("{"))),
					plain.Publish(own, message.NewMessage("no topic", []byte("{}"))))
			}))
			p := outbox.Forwarder{Topic: own}.Publisher(answers(b))
			if _, each := p.(brokers.EachPublisher); each != (name == "each") {
				t.Errorf("it answers for each: %v", each)
			}
			_, stop := start(t, r.outbox, quick(map[string]message.Publisher{"": p}))
			testenv.Eventually(t, "they are published", func() bool { return r.waiting() == 0 })
			stop()
			same(t, "orders", b.ids("orders"), []string{"1", "2", "3"})
			same(t, "mails", b.ids("mails"), []string{"mail"})
			same(t, "envelopes", b.ids(own), nil)
			if msg := b.taken["mails"][0]; string(msg.Payload) != "\x00\xff" || msg.Metadata.Get("name") != "Welcome" {
				t.Errorf("%q %v", msg.Payload, msg.Metadata)
			}
			if n := r.count("SELECT count(*) FROM millpond_outbox_failed"); n != 2 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

var (
	option = regexp.MustCompile(`(?m)^transforms\.outbox\.(\S+)=(\S+)$`)
	alters = regexp.MustCompile(`(?s)ALTER TABLE millpond_outbox.*?;`)
)

// debezium are the columns that the options of the page name, by what they are for. Of what
// is said twice the last counts.
func debezium(t *testing.T) (columns map[string]string, alter string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/debezium.md")
	check(t, err)
	columns = make(map[string]string)
	for _, found := range option.FindAllStringSubmatch(string(page), -1) {
		name, value := found[1], found[2]
		switch {
		case strings.HasPrefix(name, "table.field.event."):
			columns[strings.TrimPrefix(name, "table.field.event.")] = value
		case name == "route.by.field":
			columns["topic of "+value] = value
		case name == "table.fields.additional.placement":
			for placement := range strings.SplitSeq(value, ",") {
				column, _, _ := strings.Cut(placement, ":")
				columns["header of "+column] = column
			}
		}
	}
	if len(columns) != 7 {
		t.Fatalf("the page has options for %v", columns)
	}
	return columns, alters.FindString(string(page))
}

// The event router takes the topic as a text, and everything else as it is; bytes pass
// converters of bytes.
func TestDebeziumFindsItsColumns(t *testing.T) {
	t.Parallel()
	columns, alter := debezium(t)
	for name, system := range map[string]struct {
		open        func(testing.TB) *rig
		text, bytes []string
		without     string // the topic of others
	}{
		"postgres": {onPostgres, []string{"text"}, []string{"bytea"}, "topic_text"},
		"mariadb":  {onMariaDB, []string{"varchar"}, []string{"varbinary", "longblob"}, "topic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := system.open(t)
			if name == "mariadb" {
				check(t, r.transact(func(_ func(stores.PublisherConfig) message.Publisher, exec execer) error { return exec(alter) }))
			}
			for purpose, column := range columns {
				kinds := system.bytes
				switch {
				case purpose == "topic of "+system.without:
					continue
				case strings.HasPrefix(purpose, "topic of "):
					kinds = system.text
				}
				query := fmt.Sprintf("SELECT count(*) FROM information_schema.columns WHERE table_name = 'millpond_outbox' AND column_name = '%s' AND data_type IN ('%s')", column, strings.Join(kinds, "', '"))
				if name == "mariadb" {
					query += " AND table_schema = DATABASE()"
				}
				if r.count(query) != 1 {
					t.Errorf("%s: there is no column %s of %q", purpose, column, kinds)
				}
			}
			b := &broker{}
			c := quick(map[string]message.Publisher{"": each{b}})
			c.Keep = true
			_, stop := start(t, r.outbox, c)
			r.say("", "k", "a", "b")
			testenv.Eventually(t, "relays go on", func() bool { return len(b.all()) == 2 && r.count("SELECT count(*) FROM millpond_outbox_history") == 2 })
			stop()
		})
	}
}

// The log has an insert of each output, with its content, and no update, and a relay that
// leaves publishing to another program deletes it.
func TestLogHasInsertsForDebezium(t *testing.T) {
	t.Parallel()
	r := onPostgresAt(t, testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{"wal_level": "logical"})).NewDatabase(t))
	conn, err := pgx.Connect(t.Context(), r.address)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, statement := range []string{
		"CREATE PUBLICATION outbox FOR TABLE millpond_outbox",
		"SELECT pg_create_logical_replication_slot('outbox', 'pgoutput')",
	} {
		_, err := conn.Exec(t.Context(), statement)
		check(t, err)
	}
	c := quick(map[string]message.Publisher{"": outbox.External()})
	c.Keep = true
	_, stop := start(t, r.outbox, c)
	r.say("", "k", numbered("m", 20)...)
	testenv.Eventually(t, "the rows are in the history", func() bool {
		return r.waiting() == 0 && r.count("SELECT count(*) FROM millpond_outbox_history") == 20
	})
	stop()
	rows, err := conn.Query(t.Context(), "SELECT data FROM pg_logical_slot_get_binary_changes(slot_name => 'outbox', upto_lsn => NULL, upto_nchanges => NULL, "+
		"VARIADIC options => ARRAY['proto_version', '1', 'publication_names', 'outbox'])")
	check(t, err)
	changes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	check(t, err)
	kinds, inserted := make(map[byte]int), 0
	for _, change := range changes {
		kinds[change[0]]++
		if text := string(change); change[0] == 'I' && strings.Contains(text, "topic") && strings.Contains(text, hex.EncodeToString([]byte(fmt.Sprintf("content of m%05d", inserted)))) {
			inserted++ // in the order of the commits
		}
	}
	if kinds['I'] != 20 || inserted != 20 || kinds['D'] != 20 || kinds['U'] != 0 {
		t.Errorf("the log has %v, and %d inserts in order", kinds, inserted)
	}
}
