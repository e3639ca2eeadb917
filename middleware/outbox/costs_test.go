package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// What outputs cost is part of the contract, and exact: these are no timings.
func TestWriteAheadLogOfOutputsAndOfRelaying(t *testing.T) {
	t.Parallel()
	r := onPostgresAt(t, testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0", "full_page_writes": "off",
	})).NewDatabase(t))
	wal := func() int { return r.count("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint") }
	const messages = 2000
	payload := make([]byte, 600)
	content := 0
	write := func(n int) {
		check(t, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, _ execer) error {
			msg := newMessage(fmt.Sprintf("m%06d", n), fmt.Sprint(n%50))
			msg.Payload = payload
			content = len(payload) + len(`{"text":{"key":"00"}}`) + len(msg.UUID) + len("topic") + 2
			return publisher(stores.PublisherConfig{OrderKey: byKey}).Publish("topic", msg)
		}))
	}
	write(0)
	before := wal()
	for n := range messages {
		write(n + 1)
	}
	output := (wal() - before) / messages
	t.Logf("WAL of an output: %d B, content %d B", output, content)
	if output > content+250 {
		t.Errorf("an output writes %d B beside its content, at most 250 are allowed", output-content)
	}
	before = wal()
	b := &broker{}
	config := quick(one(each{b}))
	config.LeaseTTL = time.Hour // renewals go by time, and rows do not pay for a slow machine
	_, stop := start(t, r.outbox, config)
	testenv.Eventually(t, "all settled", func() bool { return r.waiting() == 0 })
	stop()
	relayed := (wal() - before) / (messages + 1)
	t.Logf("WAL of a relayed row, with taking and leaving the leases: %d B", relayed)
	if relayed > 100 {
		t.Errorf("a relayed row writes %d B, at most 100 are allowed", relayed)
	}
}
