package mysql

import (
	"context"
	"net/url"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/stores"
)

// DriverConfig is what a URL means for the driver.
func DriverConfig(u *url.URL) (*mysql.Config, error) {
	c, _, err := parseURL(u)
	return c, err
}

// Judge is judge, as a word.
func Judge(text string, noEscapes bool) string {
	switch judge(text, noEscapes) {
	case ends:
		return "ends"
	case unclear:
		return "unclear"
	case marks:
		return "marks"
	case plain:
	}
	return "plain"
}

// StatementsOf takes a migration apart.
func StatementsOf(text string) []string { return statementsOf(text) }

// ShapeTables returns the names of the tables.
func (s *Store) ShapeTables() []string { return s.shape().TableNames() }

// Apply runs a migration's SQL.
func (s *Store) Apply(ctx context.Context, step string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = s.apply(ctx, conn, []stores.Migration{{Version: 99, Name: "test", SQL: step}})
	return err
}

// Unshared is unshared.
func Unshared(text string) string { return unshared(text, false) }

// SendOn sends a statement on the connection of a batch, as nobody can.
func SendOn(ctx context.Context, b stores.Batch, text string) error {
	_, err := b.(*batch).send(ctx, text)
	return err
}
