package rabbitmq

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// node is how a broker is run: Erlang's name for it, its own directory and its ports.
type node struct {
	programs programs
	config   Config

	dir, port    string // of the last configure
	distribution int
	names        int // port of Erlang's name service, which the node has for itself
	nameService  *host.Process
}

// configure chooses the further ports, writes the files, removes the data, and starts the
// name service.
func (n *node) configure(dir, address string) error {
	n.dir = dir
	var err error
	if _, n.port, err = net.SplitHostPort(address); err != nil {
		return err
	}
	for _, port := range []*int{&n.distribution, &n.names} {
		if *port, err = host.FreePort(); err != nil {
			return err
		}
	}
	for name, content := range n.config.files() {
		if err := os.WriteFile(n.file(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(n.file("data")); err != nil {
		return err
	}
	return n.startNameService()
}

// startNameService starts epmd, which a node would start itself otherwise, and leave
// behind. One whose port is taken ends at once, and the node then fails.
func (n *node) startNameService() error {
	if err := n.endNameService(); err != nil {
		return err
	}
	command := n.command(filepath.Join(n.programs.bin, "epmd"), "-address", loopback, "-port", strconv.Itoa(n.names))
	command.Dir, command.Log = n.dir, n.file("rabbitmq.log")
	var err error
	n.nameService, err = host.StartProcess(command)
	return err
}

func (n *node) endNameService() error {
	if n.nameService == nil {
		return nil
	}
	if err := n.nameService.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	const most = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return n.nameService.Wait(ctx)
}

func (n *node) command(path string, args ...string) host.Command {
	return host.Command{Path: path, Args: args, Env: n.environment()}
}

// environment is all that the node and its tools know of the world.
func (n *node) environment() []string {
	return []string{
		"PATH=" + n.programs.bin + ":/usr/bin:/bin",
		"HOME=" + n.dir, // the cookie
		"LANG=C.UTF-8",
		"TZ=UTC",
		"ERL_EPMD_ADDRESS=" + loopback,
		"ERL_EPMD_PORT=" + strconv.Itoa(n.names),
		"RABBITMQ_NODENAME=millpond" + n.port + "@localhost",
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CONFIG_FILE=" + n.file("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + n.file("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + n.file("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + n.file("data"),
		"RABBITMQ_LOG_BASE=" + n.file("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + n.file("rabbitmq.pid"),
		"RABBITMQ_NODE_IP_ADDRESS=" + loopback,
		"RABBITMQ_NODE_PORT=" + n.port,
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(n.distribution),
		// Two schedulers, which do not spin when they have nothing to do.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
		// The script becomes the node, so that its process is the one we know.
		"RUNNING_UNDER_SYSTEMD=1",
	}
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// complaints returns what the log has from an offset on that explains a failure: its
// first errors, because Erlang's reports of what they led to come last and are long.
func complaints(logFile string, offset int64) string {
	b, err := os.ReadFile(logFile) // #nosec G304 -- the broker's
	if err != nil || offset > int64(len(b)) {
		return ""
	}
	const most = 10
	var lines []string
	for line := range strings.Lines(string(b[offset:])) {
		if strings.Contains(line, " [error] ") && len(lines) < most {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		return host.Tail(logFile, offset)
	}
	return "\n\t" + strings.Join(lines, "\n\t")
}
