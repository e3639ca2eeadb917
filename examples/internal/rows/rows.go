// Package rows reads what queries of the examples find.
package rows

import (
	"context"
	"database/sql"
)

// Each hands the rows of a query to row, one after the other.
func Each(ctx context.Context, db *sql.DB, query string, row func(*sql.Rows) error) error {
	found, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		if err := row(found); err != nil {
			return err
		}
	}
	return found.Err()
}
