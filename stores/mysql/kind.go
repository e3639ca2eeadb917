package mysql

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// kind is which of the products a server is: MySQL if none of these.
type kind struct{ maria, tidb bool }

func (k kind) name() string {
	switch {
	case k.maria:
		return "MariaDB"
	case k.tidb:
		return "TiDB"
	}
	return "MySQL"
}

// callable reports whether claims and completions may be procedures. MariaDB needs none, and
// TiDB has none.
func (k kind) callable() bool { return !k.maria && !k.tidb }

// nowait ends a statement that reads a row, and fails at once where another transaction has
// it. TiDB has no shared locks: it takes FOR SHARE for nothing, if it takes it.
func (k kind) nowait() string {
	switch {
	case k.maria:
		return " LOCK IN SHARE MODE NOWAIT"
	case k.tidb:
		return " FOR UPDATE NOWAIT"
	}
	return " FOR SHARE NOWAIT"
}

// refusals end statements that must not be given a lock that somebody has. TiDB takes SKIP
// LOCKED, and neither locks nor skips.
func (k kind) refusals() []string {
	if k.tidb {
		return []string{" FOR UPDATE NOWAIT"}
	}
	return []string{" FOR UPDATE SKIP LOCKED", " FOR UPDATE NOWAIT"}
}

// Oldest versions: before them MySQL and MariaDB have no SKIP LOCKED; nothing was tried on an
// older TiDB.
var (
	oldestMySQL   = [2]int{8, 0}
	oldestMariaDB = [2]int{10, 6}
	oldestTiDB    = [2]int{8, 4}
)

var versionNumbers = regexp.MustCompile(`^(?:5\.5\.5-|.*-TiDB-v)?(\d+)\.(\d+)`)

// useInstead ends refusals.
var useInstead = fmt.Sprintf("MySQL %d.%d or later, or MariaDB %d.%d or later", oldestMySQL[0], oldestMySQL[1], oldestMariaDB[0], oldestMariaDB[1])

// supported returns what a version is of, and refuses those that are too old, and other
// servers. Percona's server, those of clouds, and proxies before either are MySQL and MariaDB.
func (s *Store) supported(version, comment string) (k kind, err error) {
	k.maria = isMariaDB(version)
	k.tidb = strings.Contains(strings.ToLower(version+" "+comment), "tidb")
	if err := sqlstore.RefuseRelatives(relatives, version+" "+comment, useInstead); err != nil {
		return k, err
	}
	oldest := oldestMySQL
	switch {
	case k.maria:
		oldest = oldestMariaDB
	case k.tidb && !s.own:
		return k, fmt.Errorf("%w: it is TiDB, on whose connections of the program's own the store cannot keep its settings: use Open or OpenDB", sqlstore.ErrUnusable)
	case k.tidb:
		oldest = oldestTiDB
		if !strings.Contains(version, "-TiDB-v") { // it may be told to call itself otherwise
			return k, nil
		}
	}
	m := versionNumbers.FindStringSubmatch(version)
	if m == nil {
		return k, nil // a relative of unknown numbering; what it lacks it will say itself
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return k, fmt.Errorf("%w: it is %s %s: use %d.%d or later", sqlstore.ErrUnusable, k.name(), version, oldest[0], oldest[1])
	}
	return k, nil
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

// forTiDB is added to a SET that begins a session, and a comment to the other servers. With the
// optimistic mode both handlers would run, and COMMIT decide; with the check put off, a guarded
// UPDATE would miss its row.
const forTiDB = " /*T! , SESSION tidb_txn_mode = 'pessimistic', SESSION tidb_constraint_check_in_place_pessimistic = 1 */"

// settingsOfTiDB is, in a SELECT, how a session of TiDB's has these settings, and empty on the
// other servers.
const settingsOfTiDB = "CONCAT('' /*T! , @@SESSION.tidb_txn_mode, ' ', @@SESSION.tidb_constraint_check_in_place_pessimistic */)"

// verify returns an error unless a session has the settings of forTiDB.
func verify(settings string) error {
	if settings == "" || settings == "pessimistic 1" {
		return nil
	}
	return fmt.Errorf("mysql: %w: TiDB does not keep tidb_txn_mode = pessimistic and tidb_constraint_check_in_place_pessimistic = ON for a session: it has %s", sqlstore.ErrUnusable, settings)
}
