package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"testing"

	mysql "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestServersThatAreTooOldAreRefused(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		kind
		use string
	}{
		"8.0.36":                         {},
		"9.7.4-2":                        {},
		"8.4.0-commercial":               {},
		"10.11.19-MariaDB-0+deb12u1":     {kind: kind{maria: true}},
		"5.5.5-10.6.12-MariaDB-log":      {kind: kind{maria: true}},
		"11.8.9-MariaDB":                 {kind: kind{maria: true}},
		"5.7.44-log":                     {use: "8.0 or later"},
		"10.5.9-MariaDB":                 {kind: kind{maria: true}, use: "10.6 or later"},
		"5.5.5-10.3.39-MariaDB-0+deb10u": {kind: kind{maria: true}, use: "10.6 or later"},
		"8.0.11-TiDB-v8.5.4":             {kind: kind{tidb: true}},
		"5.7.25-TiDB-v7.1.0":             {kind: kind{tidb: true}, use: "8.4 or later"},
		"Some other server":              {},
	} {
		k, err := (&Store{own: true}).supported(version, "")
		assert.Equal(t, want.kind, k, version)
		if want.use == "" {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorContains(t, err, want.use, version)
		require.NotErrorIs(t, unavailable(err), stores.ErrUnavailable, version)
	}
}

func TestRelativesOfMySQLAreRecognised(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ version, comment, name string }{
		{"5.7.25-OceanBase-v4.2.1.2", "OceanBase 4.2.1.2 (r102000042023120514)", "OceanBase"},
		{"5.7.32", "SingleStoreDB source distribution (compatible; MySQL Enterprise & MySQL Commercial)", "SingleStore"},
		{"5.5.58", "MemSQL source distribution (compatible; MySQL Enterprise & MySQL Commercial)", "SingleStore"},
		{"8.0.30-Vitess", "Version: 20.0.0 (Git revision 8e4f4a1)", "Vitess"},
		{"8.0.33", "Dolt", "Dolt"},
		{"8.0.36", "MySQL Community Server - GPL", ""},
		{"8.0.36-28", "Percona Server (GPL), Release 28, Revision 47601f19", ""},
		{"8.0.32-24.2", "Percona XtraDB Cluster (GPL), Release rel24", ""},
		{"8.0.mysql_aurora.3.04.0", "Source distribution", ""},
		{"8.0.35-rds", "Source distribution", ""},
		{"8.0.31-google", "(Google)", ""},
		{"10.11.14-MariaDB-0+deb12u2", "Debian n/a", ""},
		{"11.4.2-MariaDB-log", "MariaDB Server", ""},
	} {
		_, err := (&Store{own: true}).supported(test.version, test.comment)
		if test.name == "" {
			require.NoError(t, err, test)
			continue
		}
		require.ErrorContains(t, err, "the server is "+test.name+", which lacks ", test)
		require.NotErrorIs(t, unavailable(err), stores.ErrUnavailable, test)
	}
}

// A preview on connections of the store's own; its version can be set.
func TestTiDBNeedsConnectionsOfTheStores(t *testing.T) {
	t.Parallel()
	for _, said := range [][2]string{
		{"8.0.11-TiDB-v8.5.4", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible"}, {"8.0.36", "TiDB Server (Apache License 2.0)"},
	} {
		for own, use := range map[bool]string{true: "", false: "use Open or OpenDB"} {
			k, err := (&Store{own: own}).supported(said[0], said[1])
			require.True(t, k.tidb, said)
			if use == "" {
				require.NoError(t, err, said)
			} else {
				require.ErrorContains(t, err, use)
				require.NotErrorIs(t, unavailable(err), stores.ErrUnavailable)
			}
		}
	}
	require.NoError(t, verify(""))
	require.NoError(t, verify("pessimistic 1"))
	for _, wrong := range []string{"optimistic 1", "pessimistic 0"} {
		require.ErrorContains(t, verify(wrong), "it has "+wrong)
	}
}

// What could not be asked is not said to be wrong.
func TestWhatCannotBeAskedIsNotWarnedOf(t *testing.T) {
	t.Parallel()
	connector, err := mysql.NewConnector(&mysql.Config{Net: "tcp", Addr: "127.0.0.1:1", Logger: &mysql.NopLogger{}})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	var log bytes.Buffer
	s, err := New(db, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	s.warn(context.Background(), server{kind: kind{maria: true}, maxPacket: 64 << 20})
	assert.Empty(t, log.String())
}
