package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// Tests with more than one process run this test binary again.
const (
	childRole = "MILLPOND_SQLITE_TEST_CHILD"
	childPath = "MILLPOND_SQLITE_TEST_PATH"
	childSeed = "MILLPOND_SQLITE_TEST_SEED"
)

// childRoles are what a child can be. Its standard output is the parent's to read.
var childRoles = map[string]func(ctx context.Context, s *Store) error{
	"worker": work,
	"holder": hold,
}

func runChild(role string) int {
	ctx := context.Background()
	s, err := New(ctx, os.Getenv(childPath), Config{AutoMigrate: true, Synchronous: Normal})
	if err == nil {
		err = s.Register(ctx, stores.Registration{Consumer: billing, Topic: "orders"})
	}
	if err == nil {
		err = childRoles[role](ctx, s)
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

const workKeys = 1000

// work completes all keys, in an order of its own, and says when each is done.
func work(ctx context.Context, s *Store) error {
	seed, _ := strconv.ParseUint(os.Getenv(childSeed), 10, 64)
	for _, key := range rand.New(rand.NewPCG(seed, 0)).Perm(workKeys) {
		for done := false; !done; {
			a, verdict, err := s.Begin(ctx, claimOf(strconv.Itoa(key)))
			switch {
			case errors.Is(err, stores.ErrUnavailable):
			case err != nil:
				return err
			case verdict.Outcome == stores.Duplicate:
				done = true
			case verdict.Outcome == stores.Claimed:
				// Two statements, so that a kill can fall between.
				for _, half := range []string{"left", "right"} {
					if _, err := a.(*attempt).tx.Exec("INSERT INTO effects VALUES (?)", strconv.Itoa(key)+half); err != nil {
						return err
					}
				}
				if err := a.Commit(ctx); err != nil {
					return err
				}
				fmt.Println("done", key)
				done = true
			}
		}
	}
	return nil
}

// hold keeps a transaction open until the process ends.
func hold(ctx context.Context, s *Store) error {
	a, _, err := s.Begin(ctx, claimOf("held"))
	if err != nil {
		return err
	}
	if _, err := a.(*attempt).tx.Exec("INSERT INTO effects VALUES ('held')"); err != nil {
		return err
	}
	fmt.Println("holding")
	_, err = io.ReadAll(os.Stdin)
	return err
}

type child struct {
	*exec.Cmd
	output *bufio.Scanner
}

func startChild(t *testing.T, role, path string, env ...string) child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, childRole+"="+role, childPath+"="+path)...)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe() // stays open as long as we live
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return child{cmd, bufio.NewScanner(out)}
}

// kill ends a child as a crash would and returns what it had said.
func (c child) kill(t *testing.T) (said []string) {
	t.Helper()
	_ = c.Process.Kill() // fails if it has ended by itself
	said = c.rest()
	_ = c.Wait()
	return said
}

func (c child) rest() (said []string) {
	for c.output.Scan() {
		said = append(said, c.output.Text())
	}
	return said
}

func TestProcessesWriteAtOnce(t *testing.T) {
	o := open(t)
	var children []child
	for seed := range 3 {
		children = append(children, startChild(t, "worker", o.path, fmt.Sprintf("%s=%d", childSeed, seed)))
	}
	done := 0
	for _, c := range children {
		said := c.rest()
		require.NoError(t, c.Wait(), "%v", said)
		done += len(said)
	}
	require.Equal(t, workKeys, done, "each key was completed by one of them")
	o.requireCounts(workKeys, 2*workKeys)
}

// Processes are killed at any point; whatever was said to be done is there, once, and
// nothing is there by halves.
func TestKilledWorkers(t *testing.T) {
	o := open(t)
	seed := rand.Uint64N(1 << 32)
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	said := map[string]bool{}
	interrupted := 0
	for range 12 {
		c := startChild(t, "worker", o.path, fmt.Sprintf("%s=%d", childSeed, seed))
		for range 1 + random.IntN(20) {
			if !c.output.Scan() {
				break
			}
			said[c.output.Text()] = true
		}
		<-time.After(time.Duration(random.IntN(1000)) * time.Microsecond)
		for _, line := range c.kill(t) {
			said[line] = true
		}
		rows, effects := o.counts()
		require.Equal(t, 2*rows, effects)
		require.GreaterOrEqual(t, rows, len(said))
		for line := range said {
			key := strings.TrimPrefix(line, "done ")
			require.Equal(t, stores.Duplicate, o.verdict(claimOf(key)).Outcome)
		}
		if rows == workKeys {
			break
		}
		interrupted++
	}
	require.Positive(t, interrupted)
	c := startChild(t, "worker", o.path, childSeed+"=0")
	out := c.rest()
	require.NoError(t, c.Wait(), "%v", out)
	o.requireCounts(workKeys, 2*workKeys)
	var distinct int
	require.NoError(t, o.DB().QueryRow("SELECT count(DISTINCT note) FROM effects").Scan(&distinct))
	require.Equal(t, 2*workKeys, distinct)
}

// While another process holds the write lock nothing is known of a key without a row;
// completed ones are found; when it dies its key is free.
func TestHolderInAnotherProcess(t *testing.T) {
	o := open(t, func(c *Config) { c.BusyTimeout = 50 * time.Millisecond })
	o.complete(claimOf("completed"))
	c := startChild(t, "holder", o.path)
	require.True(t, c.output.Scan())
	require.Equal(t, "holding", c.output.Text())

	for _, id := range []string{"held", "other"} {
		_, verdict, err := o.Begin(t.Context(), claimOf(id))
		require.ErrorIs(t, err, stores.ErrUnavailable)
		require.Zero(t, verdict.Outcome)
	}
	require.Equal(t, stores.Duplicate, o.verdict(claimOf("completed")).Outcome)
	conflict := claimOf("completed")
	conflict.Fingerprint = fingerprintOf("other")
	require.Equal(t, stores.Conflict, o.verdict(conflict).Outcome)
	_, _, err := o.Begin(within(t, 10*time.Millisecond), claimOf("held"))
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.Empty(t, c.kill(t))
	o.complete(claimOf("held"))
	o.requireCounts(2, 2)
}

// Many processes open a file that does not exist yet.
func TestProcessesCreateAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.db")
	var children []child
	for range 6 {
		children = append(children, startChild(t, "holder", path))
	}
	// Each needs the lock for its table; none of them has effects, so each fails there,
	// after it has migrated and registered.
	for _, c := range children {
		said := c.rest()
		require.Error(t, c.Wait())
		require.Len(t, said, 1)
		require.Contains(t, said[0], "no such table: effects")
	}
	s, err := New(t.Context(), path, Config{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Validate(t.Context()))
}
