package rabbitmq

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Config configures a broker.
type Config struct {
	Version Version // zero: Packaged

	// Settings are keys of rabbitmq.conf, beside or instead of the defaults, such as
	// consumer_timeout (in milliseconds).
	Settings map[string]string
}

// DefaultSettings returns the keys of rabbitmq.conf that brokers start with.
func DefaultSettings() map[string]string {
	return map[string]string{
		"loopback_users":                    "none",
		"vm_memory_high_watermark.absolute": "512MB",
		"disk_free_limit.absolute":          "50MB",
	}
}

// advanced is what rabbitmq.conf has no keys for: consumer_timeout is looked at every
// second, where a server of one's own does so every minute.
const advanced = "[{rabbit, [{channel_tick_interval, 1000}]}].\n"

// files returns the configuration files by their names.
func (s *Server) files(config Config) map[string]string {
	settings := DefaultSettings()
	maps.Copy(settings, config.Settings)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", key, settings[key])
	}
	return map[string]string{
		"rabbitmq.conf":   b.String(),
		"advanced.config": advanced,
		"enabled_plugins": "[].\n",
	}
}

// environment is all that the node and its tools know of the world.
func (s *Server) environment() []string {
	return []string{
		"PATH=" + s.programs.bin + ":/usr/bin:/bin",
		"HOME=" + s.dir.Path, // the cookie
		"LANG=C.UTF-8",
		"TZ=UTC",
		"ERL_EPMD_ADDRESS=" + loopback,
		"ERL_EPMD_PORT=" + strconv.Itoa(s.names),
		"RABBITMQ_NODENAME=" + s.node(),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CONFIG_FILE=" + s.file("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + s.file("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.file("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + s.file("data"),
		"RABBITMQ_LOG_BASE=" + s.file("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + s.file("rabbitmq.pid"),
		"RABBITMQ_NODE_IP_ADDRESS=" + loopback,
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(s.port),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(s.distribution),
		// Two schedulers, which do not spin when they have nothing to do.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
		// The script becomes the node, so that its process is the one we know.
		"RUNNING_UNDER_SYSTEMD=1",
	}
}

func (s *Server) node() string { return "millpond" + strconv.Itoa(s.port) + "@localhost" }

func (s *Server) file(name string) string { return filepath.Join(s.dir.Path, name) }
