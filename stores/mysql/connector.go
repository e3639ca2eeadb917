package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	mysql "github.com/go-sql-driver/mysql"
)

// connector makes the connections that only attempts use. In their sessions autocommit
// is off for good: a transaction begins with the first statement, which is the claim, so
// that it needs no BEGIN, and one that ends early is followed by another and never by
// statements that commit one by one.
type connector struct {
	native driver.Connector
	setup  []string
}

func newConnector(c *mysql.Config, isolation sql.IsolationLevel) (*connector, error) {
	native, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return &connector{native: native, setup: []string{
		"SET SESSION autocommit = 0",
		"SET SESSION TRANSACTION ISOLATION LEVEL " + levelName(isolation),
	}}, nil
}

// native is a connection of the driver's.
type native interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
	driver.Pinger
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.native.Connect(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := opened.(native)
	if !ok {
		return nil, errors.Join(fmt.Errorf("mysql: the driver's %T lacks what this version needs", opened), opened.Close())
	}
	for _, text := range c.setup {
		if _, err := n.ExecContext(ctx, text, nil); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	id, err := connectionID(ctx, n)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return &conn{native: n, id: id}, nil
}

// connectionID asks the server how it calls the connection, so that it can be ended from
// another one.
func connectionID(ctx context.Context, n native) (id string, err error) {
	rows, err := n.QueryContext(ctx, "SELECT CONNECTION_ID()", nil)
	if err != nil {
		return "", err
	}
	var value [1]driver.Value
	if err = rows.Next(value[:]); err == nil {
		id = fmt.Sprint(value[0])
	}
	return id, errors.Join(err, rows.Close())
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.native.Driver() }
