package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// URLVariable names the environment variable that gives the shared server of tests
// another address. This package does not read it.
const URLVariable = "MILLPOND_TEST_POSTGRES_URL"

// Superuser is the only role of a new server. It needs no password.
const Superuser = "millpond"

// Config is what a server may differ in. The zero value is ready for use.
type Config struct {
	// Settings go into postgresql.conf, after and over [DefaultSettings]. Values are
	// as SHOW prints them, without quotes. The port and the addresses are not
	// theirs to change.
	Settings map[string]string
}

// DefaultSettings returns the settings of every server: a commit is on the disk
// before it is answered, and what is slow or blocked is in the log.
func DefaultSettings() map[string]string {
	return map[string]string{
		"fsync":                     "on",
		"synchronous_commit":        "on",
		"full_page_writes":          "on",
		"wal_level":                 "logical",
		"max_connections":           "200",
		"max_prepared_transactions": "10",
		"shared_buffers":            "32MB",
		"deadlock_timeout":          "200ms",
		"log_lock_waits":            "on",
		"log_line_prefix":           "%m [%p] %d ",
	}
}

// conf returns the lines that follow initdb's postgresql.conf.
func (c Config) conf() string {
	settings := DefaultSettings()
	maps.Copy(settings, c.Settings)
	settings["listen_addresses"] = loopback
	settings["unix_socket_directories"] = "" // their paths may be too long, and TCP is what is tested
	delete(settings, "port")                 // given on the command line, because it is chosen at the start
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return b.String()
}
