package crash

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// system is a database under test, with the tables of store and service.
type system struct {
	name     string   // of one of the clients, too
	url      string   // for workers
	admin    *sql.DB  // for the parent, past all faults; nil if it speaks no SQL
	observer observer // the same

	dialect     dialect
	commitTimes bool // the server keeps them

	server, pooler process  // nil if there is none, or if it must not be hurt
	proxy          proxy    // nil without
	failing        *failing // nil if its server loses nothing
}

// process is one that can be killed and started again at the same address.
type process interface {
	Kill() error
	Start(ctx context.Context) error
}

// schema is what the service writes to. Nothing in it is unique that could keep an
// effect from happening twice.
const schema = `
CREATE TABLE effect (consumer {text} NOT NULL, id {text} NOT NULL, part integer NOT NULL, run {text} NOT NULL, payload {text} NOT NULL{sequence});
CREATE INDEX effect_id ON effect (id);
CREATE TABLE stock (consumer {text} NOT NULL, item integer NOT NULL, sold integer NOT NULL);
CREATE INDEX stock_item ON stock (consumer, item);
CREATE TABLE taken (n integer PRIMARY KEY);
INSERT INTO taken VALUES (1);
CREATE TABLE parent (n integer PRIMARY KEY);
CREATE TABLE child (n integer{deferred});
`

// items is how many rows share the counting.
const items = 32

// newSystem creates the service's tables.
func newSystem(t *testing.T, name, workerURL string, admin *sql.DB, d dialect) *system {
	t.Helper()
	t.Cleanup(func() { _ = admin.Close() })
	tables := strings.NewReplacer("{text}", d.text, "{sequence}", d.sequence, "{deferred}", d.deferred).Replace(schema)
	statements := strings.Split(strings.TrimSpace(tables), "\n")
	statements = append(statements, d.procedures...)
	var stock []string
	for _, consumer := range consumers {
		for item := range items {
			stock = append(stock, fmt.Sprintf("('%s', %d, 0)", consumer, item))
		}
	}
	statements = append(statements, "INSERT INTO stock VALUES "+strings.Join(stock, ", "))
	for _, statement := range statements {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	s := &system{name: name, url: workerURL, admin: admin, dialect: d}
	s.observer = sqlTables{s}
	return s
}

// behindProxy puts a proxy between the workers and the server.
func (s *system) behindProxy(t *testing.T) *system {
	t.Helper()
	s.proxy = s.dialect.proxied(t, s.url)
	s.url = s.proxy.URL()
	return s
}

// proxied starts a proxy before the server at a URL.
func (d dialect) proxied(t *testing.T, url string) proxy {
	t.Helper()
	p, err := d.proxy(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// everything mixes all that the store has promised to survive.
func (s *system) everything() mix {
	all := everything()
	for _, c := range s.dialect.without {
		delete(all.share, c)
	}
	return all
}

// can leaves out of conducts what the store does not promise.
func (s *system) can(conducts ...conduct) []conduct {
	return slices.DeleteFunc(slices.Clone(conducts), func(c conduct) bool { return slices.Contains(s.dialect.without, c) })
}

// sessions shows what the server is doing.
func (s *system) sessions(t *testing.T) string {
	t.Helper()
	if s.dialect.activity == "" {
		return s.name + " has no sessions to show"
	}
	text := "sessions:\n"
	err := query(t.Context(), s.admin, s.dialect.activity, func(rows *sql.Rows) error {
		row, err := scanRow(rows)
		text += fmt.Sprintf("  %v\n", row)
		return err
	})
	if err != nil {
		text += err.Error()
	}
	return text
}
