package mysql_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestWhichErrorsRefuseAValue(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, own := range []bool{true, false} {
			c := newCounted(t, p, own)
			for _, text := range []string{
				"CREATE TABLE priced (id INT PRIMARY KEY, name VARCHAR(3) NOT NULL, price INT CHECK (price > 0), day DATE, parent INT, FOREIGN KEY (parent) REFERENCES priced (id))",
				"INSERT INTO priced VALUES (1, 'a', 1, NULL, NULL)",
			} {
				_, err := c.admin.ExecContext(t.Context(), text)
				require.NoError(t, err)
			}
			for text, want := range map[string]bool{
				"INSERT INTO priced VALUES (2, 'long', 1, NULL, NULL)":       true,
				"INSERT INTO priced VALUES (2, 'b', 3000000000, NULL, NULL)": false,
				"INSERT INTO priced VALUES (2, 'b', 'c', NULL, NULL)":        true,
				"INSERT INTO priced VALUES (2, 'b', 1, '2026-02-30', NULL)":  true,
				"INSERT INTO priced VALUES (2, 'b', 1 / 0, NULL, NULL)":      false,
				"INSERT INTO priced VALUES (2, NULL, 1, NULL, NULL)":         true,
				"INSERT INTO priced (id) VALUES (2)":                         true, // no default
				"INSERT INTO priced VALUES (2, 'b', -1, NULL, NULL)":         false,
				"INSERT INTO priced VALUES (2, 'b', 1, NULL, 3)":             false,
				"INSERT INTO priced VALUES (1, 'b', 1, NULL, NULL)":          false,
				"UPDATE priced SET price = price - 9223372036854775807 - 2":  false, // 1690
				"SELECT * FROM nowhere":                                      false,
			} {
				a := begin(t, c, claimOf(text))
				err := exec(t.Context(), a, text)
				require.Error(t, err, text)
				require.NoError(t, a.Rollback(t.Context()))
				assert.Equal(t, want, a.(stores.Refusing).Refuses(fmt.Errorf("order: %w", err)), "%s: %v", text, err)
			}
		}
	})
}
