package postgres_test

import (
	"fmt"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/stores"
)

func TestWhichErrorsRefuseAValue(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if _, err := s.Pool().Exec(t.Context(), pgtest.RefusalSetUp); err != nil {
		t.Fatal(err)
	}
	for text, want := range pgtest.Refusals() {
		a, tx := begin(t, s, pgtest.Claim(text))
		_, err := tx.Exec(t.Context(), text)
		if err == nil {
			t.Fatalf("%s: no error", text)
		}
		hidden := a.Commit(t.Context())
		for _, err := range []error{fmt.Errorf("order: %w", err), hidden} {
			if got := a.(stores.Refusing).Refuses(err); got != want { //nolint:forcetypeassert // a panic is a failure too
				t.Errorf("%s refuses a value: %v: %v", text, got, err)
			}
		}
	}
}
