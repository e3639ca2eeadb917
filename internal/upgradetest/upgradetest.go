// Package upgradetest migrates a database that another version is using.
package upgradetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Consumer has the rows of the fixtures.
var Consumer = stores.Consumer{Service: "inventory", Handler: "stock"}

// Number is what stands for Consumer in rows.
const Number = 2970855629233269707

// Old is a database with the tables and rows of the version before.
type Old struct {
	// Deliver handles a message by the statements of that version, and records the failure of
	// another one.
	Deliver func(id string) error
	// Store is this version's on the same database.
	Store stores.Store
}

// Failure and Output are statements of the version before, which names the columns that it
// knows. %s are an id, and a time.
const (
	Failure = `INSERT INTO millpond_failure (consumer, status, placement, content, attempts, uncounted, budget_at, first_at, last_at, message_id, class, cause, error, topic, coordinates, history)
VALUES (2970855629233269707, 4, 1, 0, 1, 0, %[2]s, %[2]s, %[2]s, '%[1]s', 'transient', 'none', 'none', 'orders', '', '[]')`
	Output = `INSERT INTO millpond_outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id) VALUES (%[2]s, 1, 1, '', 'orders', '', '', '%[1]s')`
)

// Run migrates while the version before goes on, and then reads what it has written.
func Run(t *testing.T, o Old) {
	t.Helper()
	d := deliver(o.Deliver)
	d.some(t, "before the migration")
	if _, err := o.Store.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
	d.some(t, "after the migration")
	longest := d.stop(t)
	t.Logf("%d deliveries of the version before, of which the longest took %v", d.count.Load(), longest)
	o.read(t, int(d.count.Load()))
}

// read does with the rows of the version before what a service and an operator do.
func (o Old) read(t *testing.T, delivered int) {
	t.Helper()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("Validate", o.Store.Validate(t.Context()))
	must("Register", o.Store.Register(t.Context(), stores.Registration{Consumer: Consumer, Topic: "orders"}))
	for _, id := range []string{"plain", "old 0", fmt.Sprint("old ", delivered-1)} {
		_, v, err := o.Store.Begin(t.Context(), stores.Claim{Key: stores.Key{Consumer: Consumer, ID: []byte(id)}, Bound: time.Minute})
		must("Begin", err)
		if v.Outcome != stores.Duplicate {
			t.Errorf("%s is %v", id, v.Outcome)
		}
	}
	m, err := o.Store.Find(t.Context(), stores.Key{Consumer: Consumer, ID: []byte("ordered")})
	must("Find", err)
	if string(m.Payload) != "secret" || m.Metadata["type"] != "order" || string(m.OrderKey) != "key" {
		t.Errorf("%+v", m)
	}
	var ids []string
	for {
		due, err := o.Store.Due(t.Context(), stores.DueQuery{Consumer: Consumer, Limit: 1, Reserve: time.Minute})
		must("Due", err)
		if len(due) == 0 {
			break
		}
		ids = append(ids, string(due[0].Key.ID))
		a, v, err := o.Store.Begin(t.Context(), stores.Claim{Key: due[0].Key, Take: due[0].State.Version, Bound: time.Minute})
		must("Begin", err)
		if v.Outcome != stores.Claimed {
			t.Fatalf("%s is %v", due[0].Key.ID, v.Outcome)
		}
		must("Commit", a.Commit(t.Context()))
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"ordered", "pending"}) {
		t.Errorf("%q were due", ids)
	}
	rows, err := o.Store.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 10})
	must("Quarantined", err)
	if len(rows) != 2 {
		t.Errorf("%d rows in quarantine", len(rows))
	}
	n, _, err := o.Store.Matching(t.Context(), stores.Filter{Status: []stores.Status{stores.StatusFailed}}, 10_000)
	must("Matching", err)
	if n != delivered+2 {
		t.Errorf("%d messages have failed, of %d deliveries", n, delivered)
	}
}
