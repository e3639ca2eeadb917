package shared_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

// echo is a server that answers with its process id, which is the supervisor's.
var echo = shared.Server{Name: "echo", Start: startEcho, IdleTimeout: time.Second}

// broken is a server that cannot be started.
var broken = shared.Server{
	Name:  "broken",
	Start: func(context.Context) (shared.Instance, error) { return nil, errors.New("out of marbles") },
}

// forgotten lacks what must be in an init function.
var forgotten = shared.Server{Name: "forgotten", Start: startEcho}

// clientVariable makes the test program a client, which keeps the server of that
// name until its stdin ends.
const clientVariable = "MILLPOND_TEST_CLIENT"

func init() {
	echo.SuperviseIfAsked()
	broken.SuperviseIfAsked()
}

func TestMain(m *testing.M) {
	servers := map[string]*shared.Server{"echo": &echo, "broken": &broken, "forgotten": &forgotten}
	name := os.Getenv(clientVariable)
	if name == "" {
		// As the forgotten supervisor, which runs main.
		name = os.Getenv("MILLPOND_TESTENV_SUPERVISE")
	}
	if server := servers[name]; server != nil {
		url, err := server.Open(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(url)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type echoServer struct {
	net.Listener
	done chan struct{}
}

func startEcho(context.Context) (shared.Instance, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(conn, os.Getpid())
			_ = conn.Close()
		}
	}()
	return &echoServer{listener, make(chan struct{})}, nil
}

// Close takes a while, as the end of a real server does.
func (e *echoServer) Close() error {
	err := e.Listener.Close()
	<-time.After(100 * time.Millisecond)
	return err
}

func (e *echoServer) URL() string           { return e.Addr().String() }
func (e *echoServer) Done() <-chan struct{} { return e.done }

// ask returns the supervisor's process id.
func ask(address string) (int, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var pid int
	_, err = fmt.Fscan(conn, &pid)
	return pid, err
}

type client struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
}

// newClient starts a process that uses the server.
func newClient(t *testing.T) *client {
	t.Helper()
	c := &client{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), clientVariable+"=echo")
	c.cmd.Stderr = os.Stderr
	stdin, inErr := c.cmd.StdinPipe()
	stdout, outErr := c.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, c.cmd.Start()); err != nil {
		t.Error(err) // not fatal: it is called from several goroutines
		return c
	}
	c.stdin = stdin
	t.Cleanup(c.end)
	if _, err := fmt.Fscan(stdout, &c.address); err != nil {
		t.Error(err)
	}
	return c
}

// newClients starts several at once.
func newClients(t *testing.T, n int) []*client {
	t.Helper()
	clients := make([]*client, n)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { clients[i] = newClient(t) })
	}
	wg.Wait()
	return clients
}

func (c *client) end() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

func (c *client) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// privateRoot keeps the servers of a test apart from those of others. It returns the
// directory that stands for the system's temporary one.
func privateRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "millpond-shared-test-") //nolint:usetesting // t.TempDir is not passable for other accounts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector lets each process linger for a second
	return dir
}

func supervisor(t *testing.T, c *client) int {
	t.Helper()
	pid, err := ask(c.address)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestOneServerForAll(t *testing.T) {
	privateRoot(t)
	clients := newClients(t, 8)
	pid := supervisor(t, clients[0])
	for _, c := range clients {
		if c.address != clients[0].address {
			t.Errorf("there are two servers: %s and %s", c.address, clients[0].address)
		}
	}
	// Whoever started it, it stays as long as one of them does, and longer than its
	// idle timeout.
	for _, c := range clients[1:] {
		c.kill()
	}
	<-time.After(2 * echo.IdleTimeout)
	if got := supervisor(t, clients[0]); got != pid {
		t.Errorf("the supervisor was %d and is %d", pid, got)
	}
	clients[0].kill()
	testenv.Eventually(t, "an idle supervisor ends", func() bool { return !host.Alive(pid) })
}

func TestServerIsReusedWithinItsIdleTimeout(t *testing.T) {
	privateRoot(t)
	first := newClient(t)
	pid := supervisor(t, first)
	first.kill()
	if second := newClient(t); supervisor(t, second) != pid {
		t.Error("a second server was started")
	}
}

func TestKilledSupervisorIsReplaced(t *testing.T) {
	root := privateRoot(t)
	first := newClient(t)
	pid := supervisor(t, first)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The kernel closes its files one after the other: it may listen no more, and have its lock.
	locks, err := filepath.Glob(filepath.Join(root, "*", "shared-echo-*", "supervisor.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("the locks are %q, %v", locks, err)
	}
	testenv.Eventually(t, "the killed server is gone", func() bool {
		lock, err := host.TryLock(locks[0], host.Exclusive)
		return err == nil && lock.Release() == nil
	})
	clients := newClients(t, 8)
	for _, c := range clients {
		if supervisor(t, c) == pid || c.address != clients[0].address {
			t.Errorf("one client was sent to %s, another to %s", c.address, clients[0].address)
		}
	}
}

// A client that comes while a supervisor ends waits, and gets a new one.
func TestEndingSupervisorIsReplaced(t *testing.T) {
	root := privateRoot(t)
	first := newClient(t)
	pid := supervisor(t, first)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the state is removed", func() bool {
		states, _ := filepath.Glob(filepath.Join(root, "*", "shared-echo-*", "state.json"))
		return len(states) == 0
	})
	if !host.Alive(pid) {
		t.Fatal("the supervisor was too fast for this test")
	}
	if next := newClient(t); supervisor(t, next) == pid {
		t.Error("the ending supervisor was used")
	}
}

func TestFailureIsReported(t *testing.T) {
	for name, want := range map[string]string{"broken": "out of marbles", "forgotten": "SuperviseIfAsked"} {
		t.Run(name, func(t *testing.T) {
			privateRoot(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), clientVariable+"="+name)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("got %v and %q, want an error with %q", err, out, want)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the failure was noticed after %v", took)
			}
		})
	}
}
