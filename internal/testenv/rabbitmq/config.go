package rabbitmq

import (
	"fmt"
	"maps"
	"slices"
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
func (c Config) files() map[string]string {
	settings := DefaultSettings()
	maps.Copy(settings, c.Settings)
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
