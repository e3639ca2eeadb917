package tables

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// answers is a DB that answers looks.
type answers struct {
	DB

	asked func(Statement) error
}

func (a answers) Send(_ context.Context, s Statement) (int64, error) { return 0, a.asked(s) }

// found are rows with ids, all completed.
type found struct {
	ids [][]byte
	at  int
}

func (f *found) Next() bool { f.at++; return f.at <= len(f.ids) }
func (*found) Err() error   { return nil }

func (f *found) Scan(into ...any) error {
	id := f.ids[f.at-1]
	for _, to := range into {
		switch to := to.(type) {
		case *uint64:
			*to = uint64(len(id))
		case *[]byte:
			*to = id
		}
	}
	return nil
}

// sendTogether joins looks at ids, and sends them by way of the first one.
func sendTogether(t *testing.T, tables *Tables, ids ...string) *together {
	t.Helper()
	var l looks
	for i, id := range ids {
		_, at := l.join([]byte(id))
		require.Equal(t, i, at)
	}
	shared := l.forming
	l.begin(shared)
	_, at := l.join([]byte("later"))
	require.Zero(t, at, "what comes after the send waits for it")
	tables.lookTogether(t.Context(), 1, shared)
	return shared
}

func TestLooksShareARoundTrip(t *testing.T) {
	t.Parallel()
	trips := 0
	tables := &Tables{db: answers{asked: func(s Statement) error {
		trips++
		require.Equal(t, [][]byte{[]byte("a"), []byte("bb"), []byte("a"), []byte("none")}, s.Args[1])
		return s.Read(&found{ids: [][]byte{[]byte("bb"), []byte("a")}})
	}}}
	shared := sendTogether(t, tables, "a", "bb", "a", "none")
	<-shared.done
	require.Equal(t, 1, trips)
	for i, server := range []uint64{1, 2, 1, 0} {
		require.Equal(t, server != 0, shared.rows[i].Found)
		require.Equal(t, server, shared.rows[i].Server)
	}
}

// What fails for several is asked again for each, and nobody waits for a look that panicked.
func TestLooksThatFailTogetherAreAskedAlone(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func() error{
		"error": func() error { return errors.New("connection lost") },
		"panic": func() error { panic("a tracer") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := &together{ids: [][]byte{[]byte("a"), []byte("b")}, done: make(chan struct{})}
			tables := &Tables{db: answers{asked: func(Statement) error { return fails() }}}
			func() {
				defer func() { _ = recover() }()
				tables.lookTogether(t.Context(), 1, shared)
			}()
			<-shared.done
			require.Nil(t, shared.rows)

			alone := 0
			tables.db = answers{asked: func(s Statement) error {
				alone++
				require.Equal(t, []byte("b"), s.Args[1])
				return s.Read(&found{ids: [][]byte{[]byte("b")}})
			}}
			row, err := tables.answered(t.Context(), 1, shared, 1)
			require.NoError(t, err)
			require.True(t, row.Found)
			require.Equal(t, 1, alone)
		})
	}
}

// A full round trip begins without those that come later.
func TestLooksTogetherAreBounded(t *testing.T) {
	t.Parallel()
	var l looks
	first, _ := l.join([]byte{0})
	for i := 1; i < maxTogether; i++ {
		shared, at := l.join([]byte{byte(i)})
		require.Same(t, first, shared)
		require.Equal(t, i, at)
	}
	second, at := l.join(nil)
	require.NotSame(t, first, second)
	require.Zero(t, at)
	l.begin(first)
	_, at = l.join(nil)
	require.Equal(t, 1, at)
}

var _ sqlstore.Rows = (*found)(nil)
