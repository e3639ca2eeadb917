package sqlite

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestParseURL(t *testing.T) {
	cases := map[string]struct {
		path   string
		config Config
	}{
		"sqlite:///var/lib/a.db": {"/var/lib/a.db", Config{AutoMigrate: true}},
		"sqlite://a.db":          {"a.db", Config{AutoMigrate: true}},
		"sqlite://dir/a.db":      {"dir/a.db", Config{AutoMigrate: true}},
		"sqlite://./my%20dir/a":  {"./my dir/a", Config{AutoMigrate: true}},
		"sqlite:///a%3Fb%23c.db": {"/a?b#c.db", Config{AutoMigrate: true}},
		"sqlite:///a?migrate=never&prefix=x_&busy_timeout=250ms&synchronous=normal": {
			"/a", Config{TablePrefix: "x_", BusyTimeout: 250 * time.Millisecond, Synchronous: Normal},
		},
		"sqlite:///a?migrate=auto&synchronous=full": {"/a", Config{AutoMigrate: true}},
	}
	for raw, want := range cases {
		u, err := url.Parse(raw)
		require.NoError(t, err, raw)
		path, config, err := parseURL(u)
		require.NoError(t, err, raw)
		require.Equal(t, want.path, path, raw)
		require.Equal(t, want.config, config, raw)
	}
}

func TestWrongURLs(t *testing.T) {
	for raw, wants := range map[string][]string{
		"postgres://x":          {`"postgres"`},
		"sqlite:a.db":           {"sqlite:///absolute"},
		"sqlite://":             {"no path"},
		"sqlite://:memory:":     {":memory: is not supported"},
		"sqlite:///%00":         {"NUL"},
		"sqlite://u:p@/a.db":    {"%40"},
		"sqlite:///a.db#b":      {"%23"},
		"sqlite:///%zz":         {"percent-encode"},
		"sqlite:///a?%zz":       {"name=value"},
		"sqlite:///a?migrate=x": {"migrate", `"x"`, "auto or never"},
		// All of them in one error.
		"sqlite:///a?migrate=&prefix=&busy_timeout=5&synchronous=off&mode=ro&mode_x=x": {
			`migrate is ""`, `prefix is ""`, `busy_timeout is "5"`, "5s", `synchronous is "off"`, `"mode" is unknown`, `"mode_x"`,
		},
		"sqlite:///a?pool_max_conns=5&millpond_prefix=x_": {
			`"pool_max_conns" is unknown: use migrate`, `"millpond_prefix" is for other URLs: did you mean prefix?`,
		},
		"sqlite:///a?busy_timeout=-1s":                {"busy_timeout"},
		"sqlite:///a?migrate=auto&migrate=never":      {"2 times"},
		"sqlite:///tmp/a.db?prefix=Robert%27)%3BDROP": {"TablePrefix", "Robert"},
		"sqlite:///no/such/directory/for/millpond.db": {"/no/such/directory/for", "create it"},
		"sqlite:///dev": {"/dev is not a file"},
	} {
		s, err := Open(t.Context(), raw)
		require.Nil(t, s, raw)
		require.Error(t, err, raw)
		for _, want := range wants {
			require.ErrorContains(t, err, want, raw)
		}
	}
}

func TestOpenThroughTheMux(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ?#%&;+.db")
	s, err := stores.Open(t.Context(), "sqlite://"+(&url.URL{Path: path}).EscapedPath())
	require.NoError(t, err)
	require.NoError(t, s.Validate(t.Context()))
	require.NoError(t, s.Close())
	_, err = os.Stat(path)
	require.NoError(t, err, "the file has the name that was asked for")

	s, err = stores.Open(t.Context(), "sqlite:///a?x=1")
	require.Error(t, err)
	require.Nil(t, s)
}

func TestWrongConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for want, c := range map[string]Config{
		"Config.TablePrefix": {TablePrefix: `x"; DROP TABLE y; --`},
		"Config.BusyTimeout": {BusyTimeout: -1},
		"Config.Synchronous": {Synchronous: 9},
	} {
		_, err := New(t.Context(), path, c)
		require.ErrorContains(t, err, want)
	}
	for path, want := range map[string]string{
		"":                       "empty",
		":memory:":               "not supported",
		filepath.Join(path, "b"): "does not exist",
		filepath.Dir(path):       "is not a file",
	} {
		_, err := New(t.Context(), path, Config{})
		require.ErrorContains(t, err, want, path)
	}
}

func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	t.Run("not a database", func(t *testing.T) {
		path := filepath.Join(dir, "text")
		require.NoError(t, os.WriteFile(path, []byte("this is a text, long enough to be read as a database header, which it is not"), 0o600))
		_, err := New(t.Context(), path, Config{})
		require.ErrorIs(t, err, stores.ErrUnavailable)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "not a database")
	})
	t.Run("a file for a directory", func(t *testing.T) {
		_, err := New(t.Context(), filepath.Join(dir, "text", "x.db"), Config{})
		require.ErrorContains(t, err, "not a directory")
	})
	t.Run("read-only", func(t *testing.T) {
		path := filepath.Join(dir, "read-only.db")
		first := openAt(t, path)
		first.complete(claimOf("a"))
		require.NoError(t, first.Close())
		// A file format that SQLite may read but not write, so that it is read-only for
		// a superuser too.
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{3}, 18)
		require.NoError(t, err)
		require.NoError(t, f.Close())

		s, err := New(t.Context(), path, Config{AutoMigrate: true})
		require.NoError(t, err, "it is migrated")
		defer s.Close()
		require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing, Topic: "orders"}))
		_, _, err = s.Begin(t.Context(), claimOf("b"))
		require.ErrorIs(t, err, stores.ErrUnavailable)
		require.ErrorContains(t, err, "readonly")
		verdict, err := s.Look(t.Context(), claimOf("a").Key, fingerprintOf("a"))
		require.NoError(t, err)
		require.Equal(t, stores.Duplicate, verdict.Outcome)
		err = s.Quarantine(t.Context(), stores.Quarantined{Consumer: billing, Reason: stores.ReasonNoKey})
		require.ErrorIs(t, err, stores.ErrUnavailable)
		err = s.Register(t.Context(), stores.Registration{Consumer: stores.Consumer{Service: "new", Handler: "new"}})
		require.ErrorIs(t, err, stores.ErrUnavailable)
		_, err = s.Resolve(t.Context(), claimOf("b").Key)
		require.ErrorIs(t, err, stores.ErrUnavailable)
	})
}

// Commits are durable unless asked otherwise.
func TestSettings(t *testing.T) {
	for name, want := range map[string]struct {
		config      Config
		synchronous int
	}{
		"default": {Config{AutoMigrate: true}, 2},
		"normal":  {Config{AutoMigrate: true, Synchronous: Normal}, 1},
	} {
		o := open(t, func(c *Config) { *c = want.config })
		a := o.begin(claimOf(name))
		for query, value := range map[string]any{
			"PRAGMA synchronous":  int64(want.synchronous),
			"PRAGMA journal_mode": "wal",
			"PRAGMA foreign_keys": int64(1),
		} {
			var got any
			require.NoError(t, txOf(t, a).QueryRow(query).Scan(&got))
			require.Equal(t, value, got, query)
			require.NoError(t, o.DB().QueryRow(query).Scan(&got))
			require.Equal(t, value, got, query)
		}
		require.NoError(t, a.Rollback(t.Context()))
	}
}

// Dead letters and the quarantine have the payloads of messages: nobody else on the machine
// reads what the store has made.
func TestFilesAreTheUsersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // there files have no modes
	}
	path := filepath.Join(t.TempDir(), "private.db")
	s, err := New(t.Context(), path, Config{AutoMigrate: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	require.Contains(t, files, path+"-wal")
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), file)
	}
}

// A file that is there keeps the mode that somebody gave it.
func TestModeOfAFileThatIsThereIsKept(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	path := filepath.Join(t.TempDir(), "shared.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o660))
	s, err := New(t.Context(), path, Config{AutoMigrate: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, file := range []string{path, path + "-wal"} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o660), info.Mode(), file)
	}
}
