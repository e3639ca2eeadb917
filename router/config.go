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

// Config is what a service is made of. Zero values mean the defaults, which
// [StarterConfig] lists with an explanation of each field. It can be printed and logged in
// every way, and so can what holds it: URLs are shown without their secrets, or not at all.
type Config struct {
	Service      string                   `yaml:"service"`
	Broker       BrokerConfig             `yaml:"broker"`
	Store        StoreConfig              `yaml:"store"`
	Inbox        InboxConfig              `yaml:"inbox"`
	Retry        RetryConfig              `yaml:"retry"`
	Keep         KeepConfig               `yaml:"keep"`
	DeadLetters  DeadLettersConfig        `yaml:"dead_letters"`
	RetryWorker  RetryWorkerConfig        `yaml:"retry_worker"`
	Handlers     map[string]HandlerConfig `yaml:"handlers"` // by the names given to Service.Handle
	DrainTimeout time.Duration            `yaml:"drain_timeout"`
	Log          LogConfig                `yaml:"log"`
	Telemetry    TelemetryConfig          `yaml:"telemetry"`
	HTTP         HTTPConfig               `yaml:"http"`
	RequireTLS   bool                     `yaml:"require_tls"`

	// Program is what only the program can say.
	Program Program `yaml:"-"`

	sources *sources // nil if the program has made it
}

// BrokerConfig says where messages come from.
type BrokerConfig struct {
	URL           URL    `yaml:"url"`
	Group         string `yaml:"group"`
	InFlight      int    `yaml:"in_flight"`
	DeliveryLimit int    `yaml:"delivery_limit"`
}

// StoreConfig says where effects are counted and failed messages kept.
type StoreConfig struct {
	URL     URL  `yaml:"url"`
	Migrate bool `yaml:"migrate"`
}

// InboxConfig is the part of [middleware.InboxConfig] that can be written as text.
type InboxConfig struct {
	Keys           []string          `yaml:"keys"`
	Scopes         []string          `yaml:"scopes"`
	HandlerTimeout time.Duration     `yaml:"handler_timeout"`
	CommitTimeout  time.Duration     `yaml:"commit_timeout"`
	ClaimTimeout   time.Duration     `yaml:"claim_timeout"`
	RecordTimeout  time.Duration     `yaml:"record_timeout"`
	AcceptTopics   bool              `yaml:"accept_topics"`
	CacheSize      int               `yaml:"cache_size"`
	CacheTTL       time.Duration     `yaml:"cache_ttl"`
	Hold           HoldConfig        `yaml:"hold"`
	Fingerprint    FingerprintConfig `yaml:"fingerprint"`
	Limits         LimitsConfig      `yaml:"limits"`
}

// HoldConfig says how deliveries wait that cannot be decided now; see
// [middleware.HoldConfig].
type HoldConfig struct {
	Limit    time.Duration `yaml:"limit"`
	MinPause time.Duration `yaml:"min_pause"`
	MaxPause time.Duration `yaml:"max_pause"`
	Max      int           `yaml:"max"`
}

// FingerprintConfig says what notices a second message under a used id; see
// [middleware.FingerprintConfig].
type FingerprintConfig struct {
	Off     bool     `yaml:"off"`
	Headers []string `yaml:"headers"`
	KeyID   int      `yaml:"key_id"`
	Key     Secret   `yaml:"key"`
}

// LimitsConfig is what a message may be at most; see [middleware.Limits].
type LimitsConfig struct {
	ID            int `yaml:"id"`
	Payload       int `yaml:"payload"`
	Metadata      int `yaml:"metadata"`
	MetadataBytes int `yaml:"metadata_bytes"`
}

// RetryConfig says what becomes of messages whose handler fails; see
// [middleware.RetryPolicy].
type RetryConfig struct {
	MaxAttempts  int           `yaml:"max_attempts"`
	MaxAge       time.Duration `yaml:"max_age"`
	MaxUncounted int           `yaml:"max_uncounted"`
	MaxImmediate int           `yaml:"max_immediate"`
	BackoffMin   time.Duration `yaml:"backoff_min"`
	BackoffMax   time.Duration `yaml:"backoff_max"`
	Placement    string        `yaml:"placement"`
	Order        string        `yaml:"order"`
	OrderWait    time.Duration `yaml:"order_wait"`
}

// KeepConfig says what is kept of failed messages; see [middleware.KeepConfig].
type KeepConfig struct {
	Off      bool `yaml:"off"`
	MaxBytes int  `yaml:"max_bytes"`
}

// DeadLettersConfig says where copies of failed messages go; see
// [middleware.DeadLetterConfig].
type DeadLettersConfig struct {
	Topic string `yaml:"topic"`
}

// RetryWorkerConfig configures what runs parked messages again; see
// [middleware.RetryWorkerConfig].
type RetryWorkerConfig struct {
	Off          bool          `yaml:"off"`
	Concurrency  int           `yaml:"concurrency"`
	PollInterval time.Duration `yaml:"poll_interval"`
}

// HandlerConfig is what one handler has for itself. Zero values mean what the service
// has.
type HandlerConfig struct {
	Group       string      `yaml:"group"`
	InFlight    int         `yaml:"in_flight"`
	RenamedFrom string      `yaml:"renamed_from"`
	Retry       RetryConfig `yaml:"retry"`
}

// TelemetryConfig switches spans and metrics on; the program imports router/telemetry.
type TelemetryConfig struct {
	On       bool   `yaml:"on"`
	Relation string `yaml:"relation"`
}

// HTTPConfig says where a service answers questions about itself.
type HTTPConfig struct {
	Listen string `yaml:"listen"`
}

// LogConfig configures the log, on the standard error. Program.Logger replaces it.
type LogConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
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

	// Inbox, if set, is called once with what the inbox will be made of, to add what
	// needs code: hooks, a codec, a classifier, a key function.
	Inbox func(*middleware.InboxConfig)

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
