package mysql

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// Config is what a server may differ in.
type Config struct {
	// Product is whose server it is; "" means MariaDB.
	Product Product

	// Settings are system variables, after and over [DefaultSettings]. The port, the
	// addresses and the directories are not theirs to change.
	Settings map[string]string
}

// Superuser is the only account of a new server. It needs no password.
const Superuser = "root"

// DefaultSettings returns the settings of every server of a product: a commit is on the
// disk before it is answered, and little memory is used.
func DefaultSettings(product Product) map[string]string {
	settings := map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"sync_binlog":                    "1",
		"innodb_buffer_pool_size":        "64M",
		"performance_schema":             "OFF",
		"max_connections":                "200",
	}
	if product == MySQL {
		settings["innodb_redo_log_capacity"] = "64M"
		settings["mysqlx"] = "OFF" // a protocol with a port of its own
		settings["secure_file_priv"] = ""
	} else {
		settings["innodb_log_file_size"] = "48M"
	}
	return settings
}

// fixed are the settings that keep a server to its own directory, address and port.
var fixed = []string{"port", "bind_address", "socket", "pid_file", "datadir", "user", "no_defaults", "basedir"}

// options returns the settings as options of the command line.
func (c Config) options() []string {
	settings := DefaultSettings(c.Product)
	for name, value := range c.Settings {
		settings[strings.ReplaceAll(name, "-", "_")] = value
	}
	maps.DeleteFunc(settings, func(name, _ string) bool { return slices.Contains(fixed, name) })
	var options []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		options = append(options, "--"+name+"="+settings[name])
	}
	return options
}

// asRoot returns the option without which the servers refuse to run as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}
