package router

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// Config configures a service. Zero values mean the defaults of the tags; [StarterConfig]
// lists and explains them. A Config, and a value that contains one, can safely be printed
// and logged: URLs are shown without their secrets, or not at all.
type Config struct {
	Service string       `config:"service" example:"my-service" missing:"name the program" about:"The name of the program. With the name of a handler it forms the consumer, under which effects are counted once. Programs that share a database need different names."`
	Broker  BrokerConfig `config:"broker" about:"The broker that messages come from."`
	Store   StoreConfig  `config:"store" about:"The handlers' database, which counts effects once and keeps failed messages."`

	// Inbox also has a file's sections retry, keep and dead_letters. The program adds the
	// fields that need code: hooks, a codec, a classifier, a key function. Its Service is
	// ignored: the field above counts.
	Inbox            middleware.InboxConfig `config:"inbox" about:"How messages are identified, and the timeouts of a delivery."`
	FingerprintKey   Secret                 `config:"/inbox.fingerprint.key" example:"at least 16 secret characters" about:"A secret key for fingerprints, for payloads that are short enough to guess. Set its variable instead of this field."`
	FingerprintKeyID int                    `config:"/inbox.fingerprint.key_id" default:"1" check:"1..255" about:"The number of the key. A new key needs a new number."`

	RetryWorker  RetryWorkerConfig            `config:"retry_worker" about:"The worker that retries parked messages when they are due."`
	Relay        RelayConfig                  `config:"relay" about:"The relay, which publishes what transactions have written into the outbox. Messages without a destination go to the broker, others to destinations."`
	Destinations map[string]DestinationConfig `config:"destinations" about:"Other brokers that handlers publish to, by the names that HandleAndPublish and outbox.Publisher give. The relay publishes to them; other processes of the service use the section to check names and topics. The destination without a name is the service's own broker. Variables set destinations that the file names; characters of a name other than letters and digits become underscores. Without a file a variable names its destination, and each underscore becomes a minus."`
	Retention    RetentionConfig              `config:"retention" about:"What is deleted from the store's tables when it is old; see docs/retention.md."`
	Handlers     map[string]HandlerConfig     `config:"handlers" about:"Settings of single handlers, by their names in the program. There are no variables for these."`
	DrainTimeout time.Duration                `config:"drain_timeout" default:"25s" check:"positive" about:"How long running handlers may take to finish when the service stops. The others are rolled back, and their messages are redelivered. Keep it below the limit of the service manager (Kubernetes: terminationGracePeriodSeconds, 30)."`
	Log          LogConfig                    `config:"log" about:"The log, on standard error."`
	Telemetry    TelemetryConfig              `config:"telemetry" about:"Spans and metrics, by OpenTelemetry. The program must import router/telemetry; see docs/tracing.md."`
	HTTP         HTTPConfig                   `config:"http" about:"The server of /livez, /readyz and, with telemetry, /metrics."`
	RequireTLS   bool                         `config:"require_tls" default:"false" about:"Refuse URLs that may send a password without verified TLS to an address that is not a loopback. If false, the service only warns."`

	// Program has the settings that only a program can make.
	Program Program

	sources *sources // nil if the program created the Config
}

// BrokerConfig configures the broker.
type BrokerConfig struct {
	URL           URL           `config:"url" example:"memory://" missing:"write the URL of the broker, such as memory:// or kafka://host:9092" about:"The broker. The program must import its adapter, one of brokers/memory, brokers/kafka, brokers/amqp, brokers/sqs and brokers/nats, whose documentation lists the parameters. Put passwords into the environment."`
	Group         string        `config:"group" example:"my-service" about:"The prefix of consumer groups. Each handler has its own group, <group>.<handler>, so that two handlers of one topic both get each message. Processes of one service share the groups. Default: the service."`
	InFlight      int           `config:"in_flight" default:"1" check:"positive" about:"How many messages of one handler may be in flight at a time. 1 keeps the broker's order. Each message in flight takes a connection of the store. (Kafka: in_flight_per_partition of the URL, 1 by default, keeps the order of a partition within this limit.)"`
	DeliveryLimit int           `config:"delivery_limit" example:"20" check:"positive" about:"How often the broker delivers a message before it drops it, if the broker cannot be asked. Only needed for the placement redelivered."`
	ReplayHorizon time.Duration `config:"replay_horizon" example:"168h" check:"positive" about:"The age up to which the broker may deliver a message again, such as the retention of its topics. Only needed for retention, if the broker cannot be asked."`
}

// StoreConfig configures the store.
type StoreConfig struct {
	URL     URL  `config:"url" example:"sqlite://my-service.db" missing:"write the URL of the store, such as sqlite://file.db or postgres://user@host/database" about:"The store. The program must import its adapter, one of stores/postgres, stores/postgres/sqldb, stores/mysql, stores/sqlite and stores/dynamodb. Its pool needs a connection for each message in flight, for each retry (retry_worker.concurrency) of each handler, four for relay.on, and one more. A URL that sets the size of the pool must not set less: postgres://app@db/app?pool_max_conns=20, mysql://app@db/app?max_open_conns=20."`
	Migrate bool `config:"migrate" default:"false" about:"Create and update millpond's tables when the service starts, instead of by millpond migrate up. (SQLite's tables are created when the file is opened, unless its URL has migrate=never.)"`
}

// RetryWorkerConfig configures the retry worker. The service sets the fields that a file
// does not have.
type RetryWorkerConfig struct {
	Off                          bool `config:"off" default:"false" about:"Leave retries to other processes of the service."`
	middleware.RetryWorkerConfig `config:""`
}

// RelayConfig configures the relay. The service sets the publisher of messages without a
// destination, if the program does not.
type RelayConfig struct {
	On             bool   `config:"on" default:"false" about:"Run a relay in this process. Any number of processes may run one; millpond relay runs nothing else."`
	External       bool   `config:"external" default:"false" about:"Publish nothing: another program, such as Debezium, reads the outbox from the database's log. The relay deletes the rows, or keeps them in the history."`
	ForwarderTopic string `config:"forwarder_topic" example:"forwarder_topic" about:"The topic of envelopes of Watermill's forwarder.Publisher. Their messages are published to their own topics. Default: none, no message is unwrapped."`
	outbox.Config  `config:""`
}

// HandlerConfig has the settings of one handler. Zero values mean the service's settings.
type HandlerConfig struct {
	Group       string                 `config:"group" example:"stock-readers" about:"The consumer group at the broker, in place of <group>.<handler>, such as an existing one."`
	InFlight    int                    `config:"in_flight" example:"8" check:"positive" about:"In place of broker.in_flight."`
	Window      time.Duration          `config:"retention_window" example:"720h" check:"positive" about:"In place of retention.window."`
	RenamedFrom string                 `config:"renamed_from" example:"inventory" about:"The handler's name when its consumer was registered. Without it a renamed handler runs redelivered messages again."`
	Lease       LeaseConfig            `config:"lease" example:"{on: true, ttl: 30s, after_crash: stop}" about:"For a handler whose effect is outside the database, such as a payment: it runs under a lease (see docs/leases.md). ttl is 30s, after_crash is retry and key_lifetime is 24h by default."`
	Batch       BatchConfig            `config:"batch" example:"{on: false, size: 32, time: 200ms}" about:"If on, messages of the handler that are in flight at the same time share a transaction and its commit (see docs/batches.md)."`
	Retry       middleware.RetryPolicy `config:"retry" example:"{max_attempts: 3, backoff_min: 10s}" about:"In place of retry, for the fields that are set here."`
}

// LeaseConfig lets a handler run under a lease.
type LeaseConfig struct {
	On                     bool `config:"on" default:"false" about:"Run the handler under a lease, and not in a transaction."`
	middleware.LeaseConfig `config:""`
}

// BatchConfig lets the messages of a handler share transactions.
type BatchConfig struct {
	On                     bool `config:"on" default:"false" about:"Let messages that are in flight at the same time share a transaction."`
	middleware.BatchConfig `config:""`
}

// TelemetryConfig switches spans and metrics on; the program imports router/telemetry.
type TelemetryConfig struct {
	On       bool   `config:"on" default:"false" about:"Switch spans and metrics on. Spans go to the program's tracer provider, metrics to its meter provider and to /metrics."`
	Relation string `config:"relation" default:"parent" check:"parent|link" about:"How a delivery's span relates to the message's span: parent, so that one trace shows both, or link, so that each delivery begins a trace."`
}

// HTTPConfig configures the server of /livez, /readyz and /metrics.
type HTTPConfig struct {
	Listen string `config:"listen" example:"127.0.0.1:9464" about:"The address to listen on. There is no authentication: use a loopback or an internal address. Default: none, the server is off."`
}

// LogConfig configures the log on standard error. Program.Logger replaces it.
type LogConfig struct {
	Level  string `config:"level" default:"info" check:"debug|info|warn|error" about:"debug, info, warn or error."`
	Format string `config:"format" default:"text" check:"text|json" about:"text or json."`
}

// Program is the part of a [Config] that cannot be written in a file.
type Program struct {
	// Logger is the service's log, in place of LogConfig.
	Logger *slog.Logger

	// Brokers and Stores open the URLs. Default: brokers.DefaultMux() and
	// stores.DefaultMux(), which know the adapters that the program imports.
	Brokers *brokers.Mux
	Stores  *stores.Mux

	// Telemetry makes the telemetry if telemetry.on is true. Default: the function that
	// package router/telemetry registers when the program imports it.
	Telemetry func(TelemetryOptions) (Telemetry, error)

	// NoSignals leaves SIGTERM and SIGINT to the program, which ends the context of
	// Service.Run itself.
	NoSignals bool
}

// LoadConfig reads a file and the environment of the process; MILLPOND_* variables override the
// file. Without a path it reads only the environment. The error is a [*ConfigError] that lists
// every problem, or says why the file cannot be read.
func LoadConfig(path string) (Config, error) {
	if path == "" {
		return ReadConfig(nil, "", os.Environ())
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return ReadConfig(os.DirFS(dir), name, os.Environ())
}

// ReadConfig is [LoadConfig] with another file system and environment, which is a list of
// NAME=value as from os.Environ. A name of "" means no file.
func ReadConfig(fsys fs.FS, name string, environ []string) (Config, error) {
	r := newReading(Config{})
	if name != "" {
		text, err := readFile(fsys, name)
		if err != nil {
			return Config{}, err
		}
		r.name = name
		r.file(text)
	}
	r.environment(environ)
	if !r.unreadable {
		r.check()
	}
	if err := r.err(); err != nil {
		return Config{}, err
	}
	r.remember()
	r.config.setDefaults()
	return r.config, nil
}

// Validate reports every problem in one [*ConfigError]. [New] calls it.
func (c *Config) Validate() error {
	r := newReading(*c)
	r.check()
	return r.err()
}
