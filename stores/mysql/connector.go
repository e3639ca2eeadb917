package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	mysql "github.com/go-sql-driver/mysql"
)

// connector makes the connections that only attempts use. Their sessions always have autocommit
// off: a transaction begins with its first statement, the claim, and needs no BEGIN. If it ends
// early, another transaction follows it, never statements that commit one by one.
type connector struct {
	native       driver.Connector
	setup        []string
	interpolates bool
}

func newConnector(c *mysql.Config, isolation sql.IsolationLevel) (*connector, error) {
	native, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return &connector{native: native, interpolates: c.InterpolateParams, setup: []string{
		"SET SESSION autocommit = 0" + forTiDB,
		"SET SESSION TRANSACTION ISOLATION LEVEL " + levelName(isolation),
	}}, nil
}

// native is what this package needs of the driver's connections.
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
	made := &conn{native: n}
	if err := made.ask(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	made.keeps = made.keeps && !c.interpolates
	return made, nil
}

// ask asks the server for the connection's id, whether bytes bound to a prepared statement arrive
// unchanged, and whether a kept statement behaves like a new one: MySQL's remember the parameter
// types of earlier values.
func (c *conn) ask(ctx context.Context) (err error) {
	rows, err := c.native.QueryContext(ctx, "SELECT CONNECTION_ID(), @@SESSION.character_set_client = @@SESSION.character_set_connection, "+serverName+", VERSION(), "+settingsOfTiDB, nil)
	if err != nil {
		return err
	}
	var row [5]driver.Value
	if err = rows.Next(row[:]); err == nil {
		c.at.id = shown(row[0])
		c.at.isOn(shown(row[2]))
		converts := shown(row[1]) != "1"
		c.claiming.refused, c.completing.refused = converts, converts
		c.keeps = isMariaDB(shown(row[3]))
		err = verify(shown(row[4]))
	}
	return errors.Join(err, rows.Close())
}

func shown(v driver.Value) string {
	if text, ok := v.([]byte); ok {
		return string(text)
	}
	return fmt.Sprint(v)
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.native.Driver() }
