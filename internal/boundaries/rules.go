package boundaries

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/millpond-go/millpond"

// A Rule says what some packages of this module may link, directly or not, so that
// nothing hides behind another package. Patterns are import paths: "./x" is one of
// this module, and a trailing "/..." takes everything below too.
type Rule struct {
	Name        string
	Packages    []string // whom it is for
	Except      []string // whom it is not for, though Packages says so
	Allow       []string // what they may link beside the standard library; nil: anything
	Deny        []string // what they must not link
	AtMostOneOf []string // of which they may link one
}

var (
	// What Watermill's message package brings along.
	watermill = []string{
		"github.com/ThreeDotsLabs/watermill",
		"github.com/ThreeDotsLabs/watermill/internal/...",
		"github.com/ThreeDotsLabs/watermill/message",
		"github.com/ThreeDotsLabs/watermill/pubsub/sync",
		"github.com/google/uuid",
		"github.com/lithammer/shortuuid/v3",
		"github.com/oklog/ulid/...",
		"github.com/pkg/errors",
	}
	storeContract  = []string{"./stores", "./internal/urlmux"}
	brokerContract = slices.Concat(watermill, []string{"./brokers", "./internal/callback", "./internal/field", "./internal/logger", "./internal/urlmux", "./internal/urlquery"})
	brokerAdapter  = slices.Concat(brokerContract, []string{"./internal/exposed", "./internal/handout", "./internal/lanes", "./internal/openset", "./internal/outage", "./internal/pause", "./internal/publishing", "./internal/unreachable", "github.com/cenkalti/backoff/v5"})
	storeAdapter   = slices.Concat(watermill, storeContract, []string{"./internal/callback", "./internal/exposed", "./internal/field", "./internal/leased", "./internal/pause", "./internal/producer", "./internal/sqlstore", "./internal/sqltx", "./internal/urlquery", "github.com/cenkalti/backoff/v5"})

	conformance = []string{"./stores/storetest/...", "./brokers/brokertest/..."}
	programs    = []string{"./examples/...", "./cmd/..."}
	everything  = []string{"./..."}

	drivers = []string{
		"github.com/jackc/pgx/...",
		"github.com/lib/pq/...",
		"github.com/go-sql-driver/mysql/...",
		"modernc.org/sqlite/...",
		"github.com/mattn/go-sqlite3/...",
		"github.com/twmb/franz-go/...",
		"github.com/IBM/sarama/...",
		"github.com/rabbitmq/amqp091-go/...",
		"github.com/aws/...",
		"github.com/nats-io/...",
	}
	testFrameworks = []string{
		"testing/...",
		"net/http/httptest",
		"github.com/stretchr/testify/...",
		"go.uber.org/goleak/...",
		"pgregory.net/rapid/...",
	}
)

// rules has an allow-list for every package outside internal. A package in none of
// them is an error: whoever adds one decides here what it may cost its users.
var rules = []Rule{
	{Name: "store contract", Packages: []string{"./stores"}, Allow: storeContract},
	{Name: "broker contract", Packages: []string{"./brokers"}, Allow: brokerContract},
	{
		Name:     "parts of the inbox that know no store", // nor a message, nor each other
		Packages: []string{"./middleware/internal/gate", "./middleware/internal/loop"},
		Allow:    []string{"./internal/pause"},
	},
	{
		Name:     "parts of the inbox that know plain values of the stores' contract",
		Packages: []string{"./middleware/internal/budget", "./middleware/internal/completed", "./middleware/internal/text", "./middleware/internal/panics"},
		Allow:    slices.Concat(storeContract, []string{"./internal/pause", "./middleware/internal/text"}),
	},
	{
		Name:     "how an attempt is executed",
		Packages: []string{"./middleware/internal/execute"},
		Allow:    slices.Concat(storeContract, []string{"./internal/callback", "./internal/leased", "./internal/pause", "./middleware/internal/batch", "./middleware/internal/text"}),
	},
	{
		Name:     "what is kept of a message",
		Packages: []string{"./middleware/internal/keep"},
		Allow:    slices.Concat(storeContract, []string{"./internal/callback", "./middleware/internal/text"}),
	},
	{Name: "what a handler publishes, until it is written", Packages: []string{"./middleware/internal/capture"}, Allow: slices.Concat(watermill, storeContract)},
	{Name: "messages that share a transaction", Packages: []string{"./middleware/internal/batch"}, Allow: storeContract},
	{
		Name:     "a delivery",
		Packages: []string{"./middleware/internal/delivery"},
		Allow:    slices.Concat(storeContract, []string{"./internal/callback", "./internal/leased", "./internal/pause", "./middleware/internal/..."}),
	},
	{
		Name:     "middleware",
		Packages: []string{"./middleware/..."},
		Except:   []string{"./middleware/telemetry"},
		Allow: slices.Concat(storeContract, brokerContract, []string{
			"./middleware/...",
			"./internal/field", "./internal/leased", "./internal/loglimit", "./internal/pause",
			"github.com/ThreeDotsLabs/watermill/...",
			"github.com/cenkalti/backoff/v5",
			"golang.org/x/sync/errgroup",
			"golang.org/x/sync/singleflight",
		}),
	},
	{
		Name:     "telemetry",
		Packages: []string{"./middleware/telemetry"},
		Allow: slices.Concat(storeContract, brokerContract, []string{
			"./middleware/...",
			"./internal/field", "./internal/leased", "./internal/loglimit", "./internal/pause",
			"github.com/ThreeDotsLabs/watermill/...",
			"github.com/cenkalti/backoff/v5",
			"golang.org/x/sync/errgroup",
			"golang.org/x/sync/singleflight",
			"go.opentelemetry.io/otel/...",
			"github.com/cespare/xxhash/...",
			"github.com/go-logr/...",
			"go.opentelemetry.io/auto/sdk/...",
		}),
		Deny: []string{"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/..."},
	},
	{Name: "telemetry of services", Packages: []string{"./router/telemetry"}, Deny: drivers},
	{
		Name:     "router",
		Packages: []string{"./router"},
		Allow: slices.Concat(storeContract, brokerContract, []string{
			"./router",
			"./middleware/...",
			"./internal/field", "./internal/leased", "./internal/loglimit", "./internal/pause",
			"github.com/ThreeDotsLabs/watermill/...",
			"github.com/cenkalti/backoff/v5",
			"github.com/goccy/go-yaml/...",
			"golang.org/x/sync/...",
		}),
	},
	{
		Name:     "postgres store",
		Packages: []string{"./stores/postgres/..."},
		Allow: slices.Concat(storeAdapter, []string{
			"./stores/postgres/...",
			"github.com/jackc/...",
			"golang.org/x/sync/semaphore",
			"golang.org/x/text/...",
		}),
	},
	{
		Name:     "sqlite store",
		Packages: []string{"./stores/sqlite/..."},
		Allow: slices.Concat(storeAdapter, []string{
			"./stores/sqlite/...",
			"modernc.org/...",
			"github.com/dustin/go-humanize",
			"github.com/mattn/go-isatty",
			"github.com/ncruces/go-strftime",
			"github.com/remyoudompheng/bigfft",
			"golang.org/x/sys/...",
		}),
	},
	{
		Name:     "mysql store",
		Packages: []string{"./stores/mysql/..."},
		Allow: slices.Concat(storeAdapter, []string{
			"./stores/mysql/...",
			"github.com/go-sql-driver/mysql",
			"filippo.io/edwards25519/...",
		}),
	},
	{
		Name:     "dynamodb store",
		Packages: []string{"./stores/dynamodb"},
		Allow:    slices.Concat(storeAdapter, []string{"./stores/dynamodb", "./internal/awsconfig", "github.com/aws/..."}),
	},
	{Name: "memory broker", Packages: []string{"./brokers/memory/..."}, Allow: slices.Concat(brokerAdapter, []string{"./brokers/memory/..."})},
	{
		Name:     "kafka broker",
		Packages: []string{"./brokers/kafka/..."},
		Except:   []string{"./brokers/kafka/official/..."},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/kafka/...",
			"./internal/urlquery",
			"github.com/twmb/franz-go/...",
			"github.com/klauspost/compress/...",
			"github.com/pierrec/lz4/...",
			"golang.org/x/crypto/...",
		}),
		Deny: []string{"./brokers/kafka/official/..."},
	},
	{
		Name:     "official kafka broker",
		Packages: []string{"./brokers/kafka/official/..."},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/kafka/official/...",
			"./brokers/kafka/internal/...",
			"./internal/wrapped",
			"./internal/urlquery",
			"github.com/ThreeDotsLabs/watermill-kafka/...",
			"github.com/IBM/sarama/...",
			"github.com/xdg-go/...",
			"golang.org/x/crypto/...",
			"golang.org/x/sync/semaphore",
			"golang.org/x/text/...",
			// What these two bring along: tracing, Kerberos, metrics, compression.
			"github.com/cespare/xxhash/...",
			"github.com/davecgh/go-spew/...",
			"github.com/dnwe/otelsarama",
			"github.com/eapache/...",
			"github.com/go-logr/...",
			"github.com/hashicorp/...",
			"github.com/jcmturner/...",
			"github.com/klauspost/compress/...",
			"github.com/pierrec/lz4/...",
			"github.com/rcrowley/go-metrics",
			"go.opentelemetry.io/...",
			"golang.org/x/net/...",
			"golang.org/x/sys/...",
		}),
		Deny: []string{"github.com/twmb/franz-go/..."},
	},
	{
		Name:     "amqp broker",
		Packages: []string{"./brokers/amqp/..."},
		Except:   []string{"./brokers/amqp/official/..."},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/amqp/...",
			"./internal/urlquery",
			"github.com/cenkalti/backoff/v5",
			"github.com/rabbitmq/amqp091-go",
		}),
		Deny: []string{"./brokers/amqp/official/..."},
	},
	{
		Name:     "official amqp broker",
		Packages: []string{"./brokers/amqp/official/..."},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/amqp/...",
			"./internal/wrapped",
			"./internal/urlquery",
			"github.com/ThreeDotsLabs/watermill-amqp/...",
			"github.com/cenkalti/backoff/...",
			"github.com/hashicorp/...",
			"github.com/rabbitmq/amqp091-go",
		}),
	},
	{
		Name:     "nats broker",
		Packages: []string{"./brokers/nats"},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/nats",
			"./internal/urlquery",
			"github.com/nats-io/...",
			"github.com/klauspost/compress/...",
			"golang.org/x/crypto/...",
			"golang.org/x/sys/...",
		}),
	},
	{
		Name:     "sqs broker",
		Packages: []string{"./brokers/sqs/..."},
		Except:   []string{"./brokers/sqs/official/..."},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/sqs/...",
			"./internal/awsconfig",
			"./internal/urlquery",
			"github.com/aws/...",
			"github.com/cenkalti/backoff/v5",
		}),
		Deny: []string{"./brokers/sqs/official/..."},
	},
	{
		Name:     "official sqs broker", // the same driver, and what the other knows of it
		Packages: []string{"./brokers/sqs/official/..."},
		Allow: slices.Concat(brokerAdapter, []string{
			"./brokers/sqs/...",
			"./internal/awsconfig",
			"./internal/wrapped",
			"./internal/urlquery",
			"github.com/ThreeDotsLabs/watermill-aws/...",
			"github.com/aws/...",
			"github.com/cenkalti/backoff/v5",
			"golang.org/x/sync/semaphore",
		}),
	},
	{Name: "shared by the SQL stores", Packages: []string{"./internal/sqlstore"}, Allow: slices.Concat(storeContract, []string{"./internal/pause"})},
	{Name: "attempts of the SQL stores", Packages: []string{"./internal/sqltx"}, Allow: slices.Concat(watermill, storeContract, []string{"./internal/leased"})},
	{Name: "publishers of the SQL stores", Packages: []string{"./internal/producer"}, Allow: slices.Concat(watermill, storeContract)},
	{Name: "configuration of AWS's clients", Packages: []string{"./internal/awsconfig"}, Allow: []string{"github.com/aws/..."}},
	{Name: "limits of the log", Packages: []string{"./internal/loglimit"}, Allow: storeContract},
	{Name: "shared by the contracts", Packages: []string{"./internal/urlmux", "./internal/callback", "./internal/exposed", "./internal/field"}, Allow: []string{}},
	{Name: "shared by the brokers", Packages: []string{"./internal/lanes", "./internal/openset", "./internal/pause", "./internal/unreachable"}, Allow: []string{}},
	{Name: "handing out and publishing, shared by the brokers", Packages: []string{"./internal/handout", "./internal/publishing"}, Allow: slices.Concat(brokerContract, []string{"./internal/openset"})},
	{Name: "outages, shared by the brokers", Packages: []string{"./internal/outage"}, Allow: slices.Concat(watermill, []string{"github.com/cenkalti/backoff/v5"})},
	{
		Name:     "conformance suites", // a stranger's adapter runs them, and needs no other
		Packages: conformance,
		Deny:     slices.Concat(drivers, programs, []string{"./stores/mysql/...", "./stores/postgres/...", "./stores/sqlite/...", "./stores/dynamodb", "./internal/testenv/..."}),
	},
	{Name: "Watermill's own libraries behind the contract", Packages: []string{"./internal/wrapped"}, Allow: slices.Concat(brokerContract, []string{"./internal/handout", "./internal/openset", "./internal/publishing"})},
	{Name: "programs", Packages: programs},
	{
		Name:     "operator's tool", // it checks URLs of Watermill's adapters, and opens none
		Packages: []string{"./cmd/millpond"},
		Deny: []string{
			"./brokers/kafka/official/...", "./brokers/amqp/official/...", "./brokers/sqs/official/...",
			"github.com/ThreeDotsLabs/watermill-kafka/...", "github.com/ThreeDotsLabs/watermill-amqp/...", "github.com/ThreeDotsLabs/watermill-aws/...",
			"github.com/IBM/sarama/...",
		},
	},

	{
		Name:        "one driver a package",
		Packages:    everything,
		Except:      append([]string{"./internal/..."}, programs...),
		AtMostOneOf: drivers,
	},
	{
		Name:     "no tests in what ships",
		Packages: everything,
		Except:   append([]string{"./internal/..."}, conformance...),
		Deny:     slices.Concat(testFrameworks, conformance),
	},
	{
		Name:     "no test servers in what ships",
		Packages: everything,
		Except:   []string{"./internal/..."},
		Deny:     []string{"./internal/testenv/...", "./brokers/sqs/internal/cutoff"},
	},
}

// Check returns a sentence for every rule that is broken, and for every package
// that no rule speaks of.
func Check(g Graph, rules []Rule) []string {
	var problems []string
	for _, path := range g.own() {
		spokenOf := matches(path, "./internal/...")
		for _, rule := range rules {
			if !matches(path, rule.Packages...) || matches(path, rule.Except...) {
				continue
			}
			spokenOf = spokenOf || !slices.Equal(rule.Packages, everything)
			problems = append(problems, rule.check(g, path)...)
		}
		if !spokenOf {
			problems = append(problems, fmt.Sprintf("%s: no rule says what it may link: add one to internal/boundaries/rules.go", short(path)))
		}
	}
	return problems
}

func (r Rule) check(g Graph, path string) []string {
	var problems []string
	var linked []string // of AtMostOneOf
	forbidden := func(dep string) bool {
		unlisted := r.Allow != nil && !g[dep].Standard && !matches(dep, r.Allow...)
		return unlisted || matches(dep, r.Deny...)
	}
	for _, dep := range g[path].Deps {
		if forbidden(dep) {
			chain := g.chain(path, dep)
			// What a forbidden package brings along need not be said.
			if between := chain[1 : len(chain)-1]; !slices.ContainsFunc(between, forbidden) {
				problems = append(problems, fmt.Sprintf("%s: must not link %s (rule %q): %s", short(path), short(dep), r.Name, strings.Join(chain, " → ")))
			}
		}
		for _, pattern := range r.AtMostOneOf {
			if matches(dep, pattern) && !slices.Contains(linked, pattern) {
				linked = append(linked, pattern)
			}
		}
	}
	if len(linked) > 1 {
		problems = append(problems, fmt.Sprintf("%s: must not link more than one of %s (rule %q)", short(path), strings.Join(linked, ", "), r.Name))
	}
	return problems
}

func matches(path string, patterns ...string) bool {
	for _, pattern := range patterns {
		if own, ok := strings.CutPrefix(pattern, "./"); ok {
			pattern = module + "/" + own
		}
		below, ok := strings.CutSuffix(pattern, "/...")
		if path == below || ok && strings.HasPrefix(path, below+"/") {
			return true
		}
	}
	return false
}

// short writes a package of this module as a path within it.
func short(path string) string {
	return strings.Replace(path, module+"/", "./", 1)
}
