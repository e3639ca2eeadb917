package mysql

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// kind is the server's product: MySQL if neither is set.
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

// callable reports whether claims and completions may be procedures. MariaDB needs none, and TiDB
// has none.
func (k kind) callable() bool { return !k.maria && !k.tidb }

// nowait returns the end of a statement that reads a row and fails at once if another transaction
// has locked it. TiDB has no shared locks: FOR SHARE has no effect there, or is an error.
func (k kind) nowait() string {
	switch {
	case k.maria:
		return " LOCK IN SHARE MODE NOWAIT"
	case k.tidb:
		return " FOR UPDATE NOWAIT"
	}
	return " FOR SHARE NOWAIT"
}

// refusals are the ends of statements that must not get another transaction's lock. TiDB accepts
// SKIP LOCKED, but neither locks nor skips.
func (k kind) refusals() []string {
	if k.tidb {
		return []string{" FOR UPDATE NOWAIT"}
	}
	return []string{" FOR UPDATE SKIP LOCKED", " FOR UPDATE NOWAIT"}
}

// Oldest versions. Earlier MySQL and MariaDB have no SKIP LOCKED; an older TiDB is untested.
var (
	oldestMySQL   = [2]int{8, 0}
	oldestMariaDB = [2]int{10, 6}
	oldestTiDB    = [2]int{8, 4}
)

var versionNumbers = regexp.MustCompile(`^(?:5\.5\.5-|.*-TiDB-v)?(\d+)\.(\d+)`)

// useInstead ends the texts of refusals.
var useInstead = fmt.Sprintf("MySQL %d.%d or later, or MariaDB %d.%d or later", oldestMySQL[0], oldestMySQL[1], oldestMariaDB[0], oldestMariaDB[1])

// supported returns the product from a version, and refuses old versions and other servers.
// Percona's server, cloud services, and proxies in front of either count as MySQL and MariaDB.
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
		return k, fmt.Errorf("%w: it is TiDB, where the store cannot keep its settings on the program's own connections: use Open or OpenDB", sqlstore.ErrUnusable)
	case k.tidb:
		oldest = oldestTiDB
		if !strings.Contains(version, "-TiDB-v") { // its version can be configured
			return k, nil
		}
	}
	m := versionNumbers.FindStringSubmatch(version)
	if m == nil {
		return k, nil // a relative with unknown version numbers; the checks find what it lacks
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return k, fmt.Errorf("%w: it is %s %s: use %d.%d or later", sqlstore.ErrUnusable, k.name(), version, oldest[0], oldest[1])
	}
	return k, nil
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

// forTiDB is added to a SET at the beginning of a session; other servers see a comment. In the
// optimistic mode both handlers would run until COMMIT decides; with deferred checks, a guarded
// UPDATE would miss its row.
const forTiDB = " /*T! , SESSION tidb_txn_mode = 'pessimistic', SESSION tidb_constraint_check_in_place_pessimistic = 1 */"

// settingsOfTiDB is an expression for these settings of a TiDB session. On other servers it is
// empty.
const settingsOfTiDB = "CONCAT('' /*T! , @@SESSION.tidb_txn_mode, ' ', @@SESSION.tidb_constraint_check_in_place_pessimistic */)"

// verify returns an error unless a session has the settings of forTiDB.
func verify(settings string) error {
	if settings == "" || settings == "pessimistic 1" {
		return nil
	}
	return fmt.Errorf("mysql: %w: TiDB does not keep tidb_txn_mode = pessimistic and tidb_constraint_check_in_place_pessimistic = ON for a session: it has %s", sqlstore.ErrUnusable, settings)
}
