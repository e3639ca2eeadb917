package mysql_test

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

func TestURLsAreCheckedWithoutAServer(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"mysql://u@host/db": "",
		"mysql://u:p%40@host:3307/db?timeout=5s&max_open_conns=4&millpond_prefix=a_&sql_mode=%27%27": "",
		"mysql://u@host/":                         "names no database",
		"mysql://u@host/a/b":                      "names no database",
		"mysql:///db":                             "names no host",
		"mysql://u@host/db?max_open_conns=0":      "positive number",
		"mysql://u@host/db?timeout=1s&timeout=2s": "given 2 times",
		"mysql://u@host/db?multiStatements=true":  "multiStatements is set by millpond",
		"mysql://u@host/db?autocommit=0":          "autocommit is set by millpond",
		"mysql://u@host/db?millpond_table=a":      "millpond_schema and millpond_prefix",
		"mysql://u@host/db?parseTime=maybe":       "parameters of the driver",
		"mysql://u@host/db?pool_max_conns=5":      `"pool_max_conns" is for other URLs: did you mean max_open_conns?`,
		"mysql://u@host/db?sslmode=require":       "did you mean tls?",
		"mysql://u@host/db?pgbouncer=transaction": `"pgbouncer" is for other URLs: remove it`,
		"mysql://u@host:99999/db":                 "check host:port",
	} {
		err := stores.DefaultMux().Check(address)
		if want == "" {
			require.NoError(t, err, address)
			continue
		}
		require.ErrorContains(t, err, want, address)
	}
	err := stores.DefaultMux().Check("mysql://u:secret@host/?max_open_conns=many&a=1&a=2")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
	require.ErrorContains(t, err, "max_open_conns")
	require.ErrorContains(t, err, "names no database")
}

func TestOpenConnects(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		address := p.shared(t).NewDatabase(t)
		s, err := stores.Open(t.Context(), address+"?max_open_conns=3&millpond_prefix=billing_&loc=Local&parseTime=true")
		require.NoError(t, err)
		defer s.Close()
		pool := s.Capabilities().Pool
		assert.Equal(t, 3, pool.Max)
		assert.Equal(t, "max_open_conns", pool.Setting)
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
		require.NoError(t, begin(t, s, claimOf("id")).Commit(t.Context()))
		m, err := s.Find(t.Context(), claimOf("id").Key)
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now(), m.CompletedAt, time.Hour)
	})
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := mysql.Open(t.Context(), "mysql://u:secret@127.0.0.1:1/db")
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	assert.NotContains(t, err.Error(), "secret")

	_, err = mysql.New(nil, mysql.Config{})
	require.Error(t, err)
	_, err = mysql.OpenDB(t.Context(), nil, mysql.Config{})
	require.Error(t, err)
	config := mustParse(t, "mysql://u@127.0.0.1:1/db?multiStatements=true")
	_, err = mysql.OpenDB(t.Context(), config, mysql.Config{})
	require.ErrorContains(t, err, "MultiStatements")
	config.MultiStatements = false
	_, err = mysql.OpenDB(t.Context(), config, mysql.Config{Isolation: 6})
	require.ErrorContains(t, err, "Isolation")
	_, err = mysql.OpenDB(t.Context(), config, mysql.Config{TablePrefix: "no prefix"})
	require.ErrorContains(t, err, "TablePrefix")
}

// logged keeps the first attribute of each record.
type logged struct {
	slog.Handler

	mu  sync.Mutex
	all []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := ""
	r.Attrs(func(a slog.Attr) bool {
		first = a.String()
		return false
	})
	l.all = append(l.all, first)
	return nil
}

func (l *logged) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func TestWarnsOfWhatTheServerDoesNotPromise(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{
		"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0", "log_bin": "log",
	}))
	config := mustParse(t, server.NewDatabase(t))
	_, err := openDB(t, config, nil).ExecContext(t.Context(), "SET GLOBAL max_allowed_packet = 1048576")
	require.NoError(t, err)
	config.Params = map[string]string{"sql_mode": "''"}
	log := &logged{}
	s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(log), MaxOpenConns: 300})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	assert.Equal(t, []string{
		"innodb_flush_log_at_trx_commit=2", "sync_binlog=0", "sql_mode=", "max_allowed_packet=1048576", "max_connections=200",
	}, log.said())
	err = s.Quarantine(t.Context(), stores.Quarantined{Consumer: billing, Reason: stores.ReasonTooLarge, Payload: make([]byte, 1<<20)})
	require.ErrorIs(t, err, stores.ErrTooLarge)
}

func TestOpenSaysWhatToDoAboutTheServersRefusal(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		good, err := url.Parse(p.shared(t).NewDatabase(t))
		require.NoError(t, err)
		for name, refused := range map[string]struct {
			change func(*url.URL)
			says   string
		}{
			"database": {func(u *url.URL) { u.Path = "/no_such_database" }, "create it, or name another in the URL"},
			"password": {func(u *url.URL) { u.User = url.UserPassword("nobody", "s3cret") }, "check user and password"},
			"variable": {func(u *url.URL) { u.RawQuery = "no_such_variable=1" }, "check the parameters of the URL"},
			"address":  {func(u *url.URL) { u.Host = "127.0.0.1:1" }, "connection refused"},
		} {
			address := *good
			refused.change(&address)
			_, err := stores.Open(t.Context(), address.String())
			require.ErrorContains(t, err, "mysql: cannot connect to "+address.Host+": ", name)
			require.ErrorContains(t, err, refused.says, name)
			if name != "variable" {
				require.ErrorIs(t, err, stores.ErrUnavailable, name)
			}
			assert.Equal(t, 1, strings.Count(err.Error(), "mysql: "), "%v", err)
			assert.NotContains(t, err.Error(), "s3cret")
		}
	})
}

// The certificate has to be for the host of the URL.
func TestTLSIsForTheHost(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"mysql://app@db.example/shop?tls=true":      "db.example",
		"mysql://app@db.example:3307/shop?tls=true": "db.example",
		"mysql://app@[::1]:3307/shop?tls=true":      "::1",
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		c, err := mysql.DriverConfig(u)
		require.NoError(t, err, raw)
		require.Equal(t, want, c.TLS.ServerName, raw)
		require.Equal(t, "tcp", c.Net)
	}
}
