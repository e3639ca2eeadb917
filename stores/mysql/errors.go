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

// Error numbers of the servers. MySQL and MariaDB have the same below 1900.
const (
	tooManyConnections  = 1040
	databaseDenied      = 1044
	accessDenied        = 1045
	unknownDatabase     = 1049
	serverShutdown      = 1053
	tableDenied         = 1142
	columnDenied        = 1143
	privilegeDenied     = 1227
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
	tooManyStatements   = 1461 // prepared ones, of all clients
	unknownVariable     = 1193
	packetTooLarge      = 1153
	errorDuringCommit   = 1180
	userLimit           = 1203
	lockWaitTimeout     = 1205
	deadlock            = 1213
	resourceLimit       = 1226
	optionPrevents      = 1290 // read_only and super_read_only
	needsNoPassword     = 1698 // MariaDB: the account is of another kind
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

	// TiDB's own, and what it says of errors without a number. At COMMIT the latter, and those
	// of other nodes, leave open what became of it.
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

	claimLost = 31962 // ours, by SIGNAL
	noCase    = 1339  // of CASE
)

// number returns the number of a server's error, 0 for any other.
func number(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// isDuplicate reports whether a row of the key stands in the way, by the name of the
// key: in the inbox there is no other unique one of ours.
func isDuplicate(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == duplicateEntry && strings.Contains(e.Message, "PRIMARY")
}

// isContended reports whether a statement failed because of somebody else's locks.
func isContended(err error) bool {
	switch number(err) {
	case lockWaitTimeout, lockNotAvailable, deadlock, recordChanged, cannotRepeat, repeatable, schemaExpired, schemaChanged, lockUnresolved, writeConflict:
		return true
	case withoutNumber:
		return strings.Contains(err.Error(), "pessimistic lock retry limit")
	}
	return false
}

// isRefused reports whether a statement could not lock a row at once. It has undone itself
// alone.
func isRefused(err error) bool { return number(err) == lockNotAvailable }

// isUndecided reports whether an error of COMMIT leaves open what became of it, on TiDB.
func isUndecided(err error) bool {
	n := number(err)
	return firstOfNodes <= n && n <= lastOfNodes && n != writeConflict
}

// interruption reports whether a statement failed for a reason that lies with the
// database alone. A context that ended is the handler's own affair.
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

// undone reports whether a failure of the server's has undone its own statement alone, so
// that the transaction goes on.
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

// SQLSTATEs of what may have been computed from rows that another message changes.
const (
	stateOutOfRange     = "22003"
	stateDivisionByZero = "22012"
)

// refusesValue reports whether err is the server's about a value, which it would refuse each
// time: those of SQLSTATE 22 that no other message can heal, and others that have no state of
// their own. A CHECK may look at what another message changes.
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

// isDrivers reports whether an error that a handler has returned is the driver's or the
// server's.
func isDrivers(err error) bool {
	return number(err) != 0 || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}

func lostConnection(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// unavailable gives an error of the driver or server its meaning for a caller who
// wants to begin something. Nothing that the server says there is about the message.
func unavailable(err error) error {
	if strings.HasPrefix(err.Error(), prefix) { // it has its meaning, from further inside
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
		n == unknownDatabase, n == accessDenied, n == needsNoPassword, // one may be dropped and made again, the others changed
		n == databaseDenied, n == tableDenied, n == columnDenied, n == privilegeDenied, n == routineDenied: // no message can be handled, until somebody grants it
		return &serverError{meaning: stores.ErrUnavailable, err: err}
	}
	return &serverError{err: err} // data, mistakes, limits: not the server's state
}

const pkg sqltx.Package = "mysql"

const prefix = string(pkg) + ": "

// serverError is what the driver or server said, and what to do about it.
type serverError struct {
	meaning error // one of the contract's, or nil
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

// fixes are what to do about errors of whoever sets up a connection.
var fixes = map[uint16]string{
	tooManyConnections: "raise max_connections of the server, or let the pools of all processes together open fewer",
	unknownDatabase:    "create it, or name another in the URL",
	accessDenied:       "check user and password",
	needsNoPassword:    "the account takes no password: use one that does",
	databaseDenied:     "grant the user rights to the database, or name another in the URL",
	unknownVariable:    "check the parameters of the URL: what is none of the driver's is sent as a system variable",
}

// connectError says why a first connection was not made.
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
