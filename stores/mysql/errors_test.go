package mysql

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func TestErrorsHaveTheirMeaningOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		is   error
		says string
	}{
		{&mysql.MySQLError{Number: 1049, Message: "Unknown database 'shop'"}, stores.ErrUnavailable, ": create it, or name another in the URL"},
		{&mysql.MySQLError{Number: 1045, Message: "Access denied"}, stores.ErrUnavailable, ": check user and password"},
		{&mysql.MySQLError{Number: 1044, Message: "Access denied"}, stores.ErrUnavailable, ": grant the user rights to the database"},
		{&mysql.MySQLError{Number: 1142, Message: "INSERT command denied"}, stores.ErrUnavailable, "INSERT command denied"},
		{&mysql.MySQLError{Number: 1064, Message: "You have an error in your SQL"}, nil, "an error"},
		{&mysql.MySQLError{Number: 1146, Message: "no table"}, stores.ErrNotMigrated, "no table"},
		{mysql.ErrInvalidConn, stores.ErrUnavailable, "invalid connection"},
		{fmt.Errorf("look: %w", stores.ErrClosed), stores.ErrClosed, "mysql: look"},
		{fmt.Errorf("%w: it is old", sqlstore.ErrUnusable), sqlstore.ErrUnusable, "mysql: the server cannot be used: it is old"},
	} {
		err := unavailable(c.err)
		if !errors.Is(err, c.err) || c.is != nil && !errors.Is(err, c.is) || c.is == nil && errors.Is(err, stores.ErrUnavailable) {
			t.Errorf("%v does not mean %v", err, c.is)
		}
		if !strings.HasPrefix(err.Error(), "mysql: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q does not say %q", err, c.says)
		}
		if again := unavailable(err); again.Error() != err.Error() {
			t.Errorf("%q became %q", err, again)
		}
	}
}
