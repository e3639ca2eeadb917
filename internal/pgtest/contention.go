package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
)

// Contended checks that a claim which the server could not serialize stops no other message.
// The store is migrated, on a database at address.
func Contended(t *testing.T, s stores.Inbox, address string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, state := range []string{"40001", "40P01"} {
		for _, text := range []string{
			"CREATE OR REPLACE FUNCTION contends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '" + state + "'; END $$",
			"CREATE OR REPLACE TRIGGER contends BEFORE INSERT ON millpond_inbox FOR EACH ROW EXECUTE FUNCTION contends()",
		} {
			if _, err := conn.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		a, v, err := s.Begin(t.Context(), Claim("contended"))
		if a != nil || v.Outcome != stores.InFlight || err != nil {
			t.Errorf("%s: %v, %v", state, v.Outcome, err)
		}
		if _, err := conn.Exec(t.Context(), "DROP TRIGGER contends ON millpond_inbox"); err != nil {
			t.Fatal(err)
		}
		if v := Verdict(t, s, Claim("contended")); v.Outcome != stores.Claimed {
			t.Errorf("after %s: %v", state, v.Outcome)
		}
	}
}
