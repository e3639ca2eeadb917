package sqlite

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestWhichErrorsRefuseAValue(t *testing.T) {
	o := open(t)
	_, err := o.DB().Exec(`CREATE TABLE priced (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER CHECK (price > 0)) STRICT;
INSERT INTO priced VALUES (1, 'a', 1)`)
	require.NoError(t, err)
	for text, want := range map[string]bool{
		"INSERT INTO priced VALUES (2, NULL, 1)":            true,
		"INSERT INTO priced VALUES (2, 'b', -1)":            false,
		"INSERT INTO priced VALUES (2, 'b', 'c')":           true,
		"INSERT INTO priced VALUES ('b', 'b', 1)":           true,
		"INSERT INTO priced VALUES (1, 'b', 1)":             false,
		"SELECT * FROM nowhere":                             false,
		"INSERT OR ROLLBACK INTO priced VALUES (1, 'b', 1)": false,
	} {
		a := o.begin(claimOf(text))
		tx, _ := TxFromContext(a.Context(t.Context()))
		_, err := tx.Exec(text)
		require.Error(t, err, text)
		require.NoError(t, a.Rollback(t.Context()))
		assert.Equal(t, want, a.(stores.Refusing).Refuses(fmt.Errorf("order: %w", err)), "%s: %v", text, err)
	}
}
