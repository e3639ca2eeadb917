package sqldb_test

import (
	"fmt"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

func TestWhichErrorsRefuseAValue(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		if _, err := s.DB().ExecContext(t.Context(), pgtest.RefusalSetUp); err != nil {
			t.Fatal(err)
		}
		for text, want := range pgtest.Refusals() {
			a, tx := begin(t, s, pgtest.Claim(text))
			_, err := tx.ExecContext(t.Context(), text)
			if err == nil {
				t.Fatalf("%s: no error", text)
			}
			_ = a.Rollback(t.Context())
			if got := a.(stores.Refusing).Refuses(fmt.Errorf("order: %w", err)); got != want { //nolint:forcetypeassert // a panic is a failure too
				t.Errorf("%s refuses a value: %v: %v", text, got, err)
			}
		}
	})
}
