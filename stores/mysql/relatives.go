package mysql

import (
	"context"
	"fmt"
	"strings"
)

// relatives speak the protocol, and some of them call themselves MySQL 8.0, but lack what
// the store rests on. What they lack they often accept without doing it, so that failures
// would be recorded and retried several times; hence they are known by name.
var relatives = []struct {
	mark  string // in the version or its comment, in small letters
	name  string
	lacks string
}{
	{"tidb", "TiDB", "FOR SHARE, and locks for SKIP LOCKED"},
	{"oceanbase", "OceanBase", "FOR SHARE"},
	{"singlestore", "SingleStore", "SKIP LOCKED"},
	{"memsql", "SingleStore", "SKIP LOCKED"},
	{"vitess", "Vitess", "a COMMIT of all shards as one"},
	{"dolt", "Dolt", "locks of rows"},
}

// relativeError refuses a server for what it is.
type relativeError struct{ name, lacks string }

func (e *relativeError) Error() string {
	return fmt.Sprintf("the server is %s, which lacks %s; use MySQL %d.%d or later, or MariaDB %d.%d or later",
		e.name, e.lacks, oldestMySQL[0], oldestMySQL[1], oldestMariaDB[0], oldestMariaDB[1])
}

func (e *relativeError) Is(target error) bool { return target == errUnusable }

// refuseRelatives judges @@version and @@version_comment. Percona's server, those of
// clouds, and proxies before either are MySQL and MariaDB.
func refuseRelatives(version, comment string) error {
	said := strings.ToLower(version + " " + comment)
	for _, r := range relatives {
		if strings.Contains(said, r.mark) {
			return &relativeError{r.name, r.lacks}
		}
	}
	return nil
}

// recognise asks the server what it is, and refuses what the store cannot run on.
func recognise(ctx context.Context, q querier) (maria bool, err error) {
	var version, comment string
	if err := q.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment").Scan(&version, &comment); err != nil {
		return false, err
	}
	return supported(version, comment)
}
