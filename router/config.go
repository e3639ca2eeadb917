package router

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Config is what a service is made of. Zero values mean the defaults of the tags, which
// [StarterConfig] lists with an explanation of each field. It can be printed and logged in
// every way, and so can what holds it: URLs are shown without their secrets, or not at all.
type Config struct {
	Service string       `config:"service" example:"my-service" missing:"name the program" about:"The name of the program. With the name of a handler it forms the consumer, under which effects are counted once. Programs that share a database must not share it."`
	Broker  BrokerConfig `config:"broker" about:"Where messages come from."`
	Store   StoreConfig  `config:"store" about:"Where effects are counted once, and failed messages kept: the database of the handlers."`

	// Inbox has retry, keep and dead_letters of a file, too. A program adds to it what needs
	// code: hooks, a codec, a classifier, a key function. Its Service is the one above.
	Inbox            middleware.InboxConfig `config:"inbox" about:"How a message is recognized, and how long things may take."`
	FingerprintKey   Secret                 `config:"/inbox.fingerprint.key" example:"at least 16 secret characters" about:"A secret that fingerprints are keyed with, for payloads so short that they could be guessed. Set its variable rather than writing it here."`
	FingerprintKeyID int                    `config:"/inbox.fingerprint.key_id" default:"1" check:"1..255" about:"The number of the key. Another key needs another number."`

	RetryWorker  RetryWorkerConfig        `config:"retry_worker" about:"What runs parked messages again, when they are due."`
	Handlers     map[string]HandlerConfig `config:"handlers" about:"What single handlers have for themselves, by their names in the program. The environment has no variables for these."`
	DrainTimeout time.Duration            `config:"drain_timeout" default:"25s" check:"positive" about:"How long handlers that run may take to finish when the service stops. Those that do not are rolled back by then, and their messages come again. Keep it below what the service manager grants (Kubernetes: terminationGracePeriodSeconds, 30)."`
	Log          LogConfig                `config:"log" about:"The log, on the standard error."`
	Telemetry    TelemetryConfig          `config:"telemetry" about:"Spans and metrics, by OpenTelemetry. The program must import router/telemetry; docs/tracing.md tells more."`
	HTTP         HTTPConfig               `config:"http" about:"Questions about the service itself: /livez, /readyz, and with telemetry /metrics."`
	RequireTLS   bool                     `config:"require_tls" default:"false" about:"Refuse URLs by which a password can travel without verified TLS to an address that is not a loopback. Otherwise it is a warning."`

	// Program is what only the program can say.
	Program Program

	sources *sources // nil if the program has made it
}

// BrokerConfig says where messages come from.
type BrokerConfig struct {
	URL           URL    `config:"url" example:"memory://" missing:"write the URL of the broker, such as memory:// or kafka://host:9092" about:"The broker. The program must import its adapter, one of brokers/memory, brokers/kafka, brokers/amqp, brokers/sqs and brokers/nats, whose documentation lists the parameters. Passwords belong into the environment."`
	Group         string `config:"group" example:"my-service" about:"Each handler has a group of its own, named <group>.<handler>, so that two handlers of one topic both get each message. Processes of one service share the groups. Default: the service."`
	InFlight      int    `config:"in_flight" default:"1" check:"positive" about:"How many messages of one handler may be in flight at a time. 1 keeps the broker's order. Each takes a connection of the store. (Kafka: within this, in_flight_per_partition of the URL, 1 by default, keeps the order of a partition.)"`
	DeliveryLimit int    `config:"delivery_limit" example:"20" check:"positive" about:"How often the broker delivers a message before it drops it, for brokers that cannot tell. Needed for the placement redelivered only."`
}

// StoreConfig says where effects are counted and failed messages kept.
type StoreConfig struct {
	URL     URL  `config:"url" example:"sqlite://my-service.db" missing:"write the URL of the store, such as sqlite://file.db or postgres://user@host/database" about:"The store. The program must import its adapter, one of stores/postgres, stores/postgres/sqldb, stores/mysql and stores/sqlite. Its pool needs a connection for each message in flight, for each retry (retry_worker.concurrency) of each handler, and one more. A URL that says how many it may open must not say less: postgres://app@db/app?pool_max_conns=20, mysql://app@db/app?max_open_conns=20."`
	Migrate bool `config:"migrate" default:"false" about:"Create and update millpond's tables when the service starts, instead of by millpond migrate up. (SQLite's are created when the file is opened, unless its URL says migrate=never.)"`
}

// RetryWorkerConfig configures what runs parked messages again. The service sets what of it
// is not in a file.
type RetryWorkerConfig struct {
	Off                          bool `config:"off" default:"false" about:"Leave that to other processes of the service."`
	middleware.RetryWorkerConfig `config:""`
}

// HandlerConfig is what one handler has for itself. Zero values mean what the service
// has.
type HandlerConfig struct {
	Group       string                 `config:"group" example:"stock-readers" about:"The group at the broker, in place of <group>.<handler>: the name of one that is there already."`
	InFlight    int                    `config:"in_flight" example:"8" check:"positive" about:"As broker.in_flight."`
	RenamedFrom string                 `config:"renamed_from" example:"inventory" about:"The name that the handler had when its consumer was made. Without it a renamed handler runs every message again that comes again."`
	Retry       middleware.RetryPolicy `config:"retry" example:"{max_attempts: 3, backoff_min: 10s}" about:"As retry, for the fields that are set here."`
}

// TelemetryConfig switches spans and metrics on; the program imports router/telemetry.
type TelemetryConfig struct {
	On       bool   `config:"on" default:"false" about:"Make them. Spans go where the program's tracer provider sends them, metrics where its meter provider does, and to /metrics."`
	Relation string `config:"relation" default:"parent" check:"parent|link" about:"How a delivery's span stands to that of the message: parent, so that one trace shows its whole way, or link, so that each delivery begins a trace."`
}

// HTTPConfig says where a service answers questions about itself.
type HTTPConfig struct {
	Listen string `config:"listen" example:"127.0.0.1:9464" about:"Where it answers. Nobody is asked who they are: keep it on a loopback or an internal address. Default: nowhere."`
}

// LogConfig configures the log, on the standard error. Program.Logger replaces it.
type LogConfig struct {
	Level  string `config:"level" default:"info" check:"debug|info|warn|error" about:"debug, info, warn or error."`
	Format string `config:"format" default:"text" check:"text|json" about:"text or json."`
}

// Program is the part of a [Config] that cannot be written in a file.
type Program struct {
	// Logger takes the service's log, in place of what LogConfig says.
	Logger *slog.Logger

	// Brokers and Stores open the URLs. Default: brokers.DefaultMux() and
	// stores.DefaultMux(), which know the adapters that the program imports.
	Brokers *brokers.Mux
	Stores  *stores.Mux

	// Telemetry makes what telemetry.on asks for. Default: what package router/telemetry
	// registers when the program imports it.
	Telemetry func(TelemetryOptions) (Telemetry, error)

	// NoSignals leaves SIGTERM and SIGINT to the program. It then ends the context given
	// to Service.Run.
	NoSignals bool
}

// LoadConfig reads a file and the environment of the process; what a MILLPOND_* variable
// says counts more than what the file says. Without a path the environment is all. The
// error is a [*ConfigError] that lists every mistake, or says why the file cannot be read.
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

// Validate reports every mistake as one [*ConfigError]. [New] calls it.
func (c *Config) Validate() error {
	r := newReading(*c)
	r.check()
	return r.err()
}
