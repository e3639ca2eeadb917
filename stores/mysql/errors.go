package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// Error numbers of the servers. MySQL and MariaDB share those below 1900.
const (
	tooManyConnections  = 1040
	databaseDenied      = 1044
	accessDenied        = 1045
	unknownDatabase     = 1049
	serverShutdown      = 1053
	tableDenied         = 1142
	columnDenied        = 1143
	privilegeDenied     = 1227
	noSuchRoutine       = 1305
	routineDenied       = 1370
	unknownColumn       = 1054
	syntaxError         = 1064
	notSupportedYet     = 1235
	duplicateEntry      = 1062
	diskFull            = 1021
	recordChanged       = 1020
	outOfMemory         = 1037
	outOfResources      = 1041
	noSuchTable         = 1146
	tooManyStatements   = 1461 // prepared statements of all clients
	unknownVariable     = 1193
	packetTooLarge      = 1153
	errorDuringCommit   = 1180
	userLimit           = 1203
	lockWaitTimeout     = 1205
	deadlock            = 1213
	resourceLimit       = 1226
	optionPrevents      = 1290 // read_only and super_read_only
	needsNoPassword     = 1698 // MariaDB: the account authenticates in another way
	unknownStatement    = 1243
	queryInterrupted    = 1317
	tableFull           = 1114
	needsReprepare      = 1615
	readOnlyTransaction = 1792
	readOnlyMode        = 1836
	connectionKilled    = 1927 // MariaDB
	statementTimeout    = 1969 // MariaDB
	lockNotAvailable    = 3572 // MySQL: NOWAIT
	disconnectedIdle    = 4031 // MySQL: wait_timeout

	// TiDB's own numbers, and the one for errors without a number. At COMMIT, that one and errors
	// of other nodes leave the outcome unknown.
	withoutNumber  = 1105
	cannotRepeat   = 8002
	repeatable     = 8022
	entryTooLarge  = 8025
	schemaExpired  = 8027
	schemaChanged  = 8028
	firstOfNodes   = 9001
	lockUnresolved = 9004
	writeConflict  = 9007
	lastOfNodes    = 9014

	columnNotNull      = 1048
	truncatedForColumn = 1265
	invalidCharacters  = 1300
	noDefault          = 1364
	wrongValue         = 1366

	claimLost = 31962 // millpond's own, raised by SIGNAL
	noCase    = 1339  // of CASE
)

// number returns the number of a server's error, or 0 for any other error.
func number(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// isDuplicate reports whether the key already has a row, by the name of the violated key: the inbox
// has no other unique key of ours.
func isDuplicate(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == duplicateEntry && strings.Contains(e.Message, "PRIMARY")
}

// isContended reports whether a statement failed because of another transaction's locks.
func isContended(err error) bool {
	switch number(err) {
	case lockWaitTimeout, lockNotAvailable, deadlock, recordChanged, cannotRepeat, repeatable, schemaExpired, schemaChanged, lockUnresolved, writeConflict:
		return true
	case withoutNumber:
		return strings.Contains(err.Error(), "pessimistic lock retry limit")
	}
	return false
}

// isRefused reports whether a statement could not lock a row at once. Only that statement was
// undone.
func isRefused(err error) bool { return number(err) == lockNotAvailable }

// isUndecided reports whether TiDB's error for COMMIT leaves the outcome unknown.
func isUndecided(err error) bool {
	n := number(err)
	return firstOfNodes <= n && n <= lastOfNodes && n != writeConflict
}

// undecided interprets an error of COMMIT in a short transaction. TiDB's errors without a number
// leave the outcome unknown as well; the caller asks again.
func undecided(err error) error {
	if number(err) == withoutNumber {
		return &serverError{meaning: stores.ErrUnavailable, err: err}
	}
	return err
}

// interruption reports whether a statement failed only because of the database. A context that ends
// is the handler's own affair.
func interruption(err error) bool {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	if isContended(err) || isUndecided(err) {
		return true
	}
	switch number(err) {
	case 0:
		return lostConnection(err)
	case errorDuringCommit,
		serverShutdown, connectionKilled, optionPrevents, readOnlyMode, readOnlyTransaction,
		unknownStatement, needsReprepare, tooManyStatements, tooManyConnections, diskFull, tableFull, outOfMemory, outOfResources, userLimit, resourceLimit:
		return true
	}
	return false
}

// undone reports whether a failure undid only its own statement, so that the transaction can go on.
func undone(err error) bool {
	switch n := number(err); n {
	case 0:
		return false
	case lockWaitTimeout, lockNotAvailable:
		return true
	default:
		return !interruption(err)
	}
}

// SQLSTATEs of errors that rows of other messages may cause.
const (
	stateOutOfRange     = "22003"
	stateDivisionByZero = "22012"
)

// refusesValue reports whether the server refused a value, and would refuse it every time: SQLSTATE
// 22 except for errors that another message may fix, and others without their own SQLSTATE. A CHECK
// does not count, because rows of other messages may decide it.
func refusesValue(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	switch e.Number {
	case columnNotNull, truncatedForColumn, invalidCharacters, noDefault, wrongValue:
		return true
	}
	switch state := string(e.SQLState[:]); state {
	case stateOutOfRange, stateDivisionByZero:
		return false
	default:
		return strings.HasPrefix(state, "22")
	}
}

// Refuses implements stores.Refusing.
func (*attempt) Refuses(err error) bool { return refusesValue(err) }

// isDrivers reports whether a handler's error comes from the driver or the server.
func isDrivers(err error) bool {
	return number(err) != 0 || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}

func lostConnection(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// unavailable interprets an error of the driver or server for a caller that begins something. No
// such error is about the message.
func unavailable(err error) error {
	if strings.HasPrefix(err.Error(), prefix) { // already interpreted further down
		return err
	}
	if sqlstore.Meaningful(err) {
		return fmt.Errorf(prefix+"%w", err)
	}
	switch n := number(err); {
	case n == noSuchTable || n == unknownColumn:
		return fmt.Errorf(prefix+"%w: %w", stores.ErrNotMigrated, err)
	case n == packetTooLarge || n == entryTooLarge || errors.Is(err, mysql.ErrPktTooLarge):
		return fmt.Errorf(prefix+"%w: %w", stores.ErrTooLarge, err)
	case n == 0, n == queryInterrupted, n == disconnectedIdle, interruption(err),
		n == unknownDatabase, n == accessDenied, n == needsNoPassword, // a database may be created again, and accounts changed
		n == databaseDenied, n == tableDenied, n == columnDenied, n == privilegeDenied, n == noSuchRoutine, n == routineDenied: // no message can be handled until the right is granted
		return &serverError{meaning: stores.ErrUnavailable, err: err}
	}
	return &serverError{err: err} // about data, mistakes or limits, not the server's state
}

const pkg sqltx.Package = "mysql"

const prefix = string(pkg) + ": "

// serverError is an error of the driver or server, with how to fix it.
type serverError struct {
	meaning error // one of stores' errors, or nil
	err     error
}

func (e *serverError) Error() string {
	if e.meaning == nil {
		return prefix + e.reason()
	}
	return prefix + e.meaning.Error() + ": " + e.reason()
}

func (e *serverError) Unwrap() []error {
	if e.meaning == nil {
		return []error{e.err}
	}
	return []error{e.meaning, e.err}
}

func (e *serverError) reason() string {
	if fix := fixes[number(e.err)]; fix != "" {
		return e.err.Error() + ": " + fix
	}
	return e.err.Error()
}

// fixes say what to do about errors when a connection is set up.
var fixes = map[uint16]string{
	tooManyConnections: "raise max_connections of the server, or let the pools of all processes together open fewer",
	unknownDatabase:    "create it, or name another in the URL",
	accessDenied:       "check user and password",
	needsNoPassword:    "the account takes no password: use one that does",
	databaseDenied:     "grant the user rights to the database, or name another in the URL",
	noSuchRoutine:      "millpond migrate up, or Migrate, creates millpond's procedures again, with an account that has CREATE ROUTINE",
	routineDenied:      "grant the user EXECUTE on it; if it is millpond's and missing, millpond migrate up creates it again",
	unknownVariable:    "check the parameters of the URL: one that the driver does not know is sent as a system variable",
}

// connectError says why the first connection failed.
type connectError struct {
	*serverError

	address string
}

func cannotConnect(address string, err error) error {
	err = unavailable(err)
	if said, ok := errors.AsType[*serverError](err); ok {
		return &connectError{said, address}
	}
	return err
}

func (e *connectError) Error() string {
	return prefix + "cannot connect to " + e.address + ": " + e.reason()
}
