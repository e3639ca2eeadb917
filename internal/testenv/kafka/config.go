package kafka

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BrokersVariable names the environment variable that points tests at a broker of the
// user's: host:port, several separated by commas.
const BrokersVariable = "MILLPOND_TEST_KAFKA_BROKERS"

// Config configures a broker.
type Config struct {
	// Settings are properties of server.properties, beside or instead of the defaults.
	Settings map[string]string

	// Secured opens further ports, with TLS and SASL; see Server.Secured.
	Secured bool
}

// DefaultSettings returns the properties that brokers start with. They are small, and
// quick to notice what happens: a broker that was killed is back in some seconds.
func DefaultSettings() map[string]string {
	return map[string]string{
		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.num.partitions":             "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"group.min.session.timeout.ms":                     "1000",
		"broker.session.timeout.ms":                        "1000",
		"broker.heartbeat.interval.ms":                     "200",
		"log.cleaner.dedupe.buffer.size":                   "4194304",
		"log.index.size.max.bytes":                         "1048576",
		"auto.create.topics.enable":                        "false",
		"delete.topic.enable":                              "true",
		"file.delete.delay.ms":                             "100",
		"log.retention.hours":                              "1",
	}
}

func (n *node) properties(dir, address string) string {
	client := "CLIENT://" + address
	control := net.JoinHostPort(loopback, strconv.Itoa(n.control))
	properties := DefaultSettings()
	maps.Copy(properties, map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       "1@" + control,
		"listeners":                      client + ",CONTROLLER://" + control,
		"advertised.listeners":           client,
		"listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "CLIENT",
		"controller.listener.names":      "CONTROLLER",
		"log.dirs":                       filepath.Join(dir, dataDir),
	})
	if n.secured != nil {
		n.secured.properties(properties, dir)
	}
	maps.Copy(properties, n.config.Settings)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&b, "%s=%s\n", name, properties[name])
	}
	return b.String()
}

const logging = `rootLogger.level=WARN
rootLogger.appenderRefs=console
rootLogger.appenderRef.console.ref=console
appenders=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} %m%n
`
