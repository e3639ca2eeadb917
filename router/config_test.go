package router_test

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
)

const fileName = "millpond.yaml"

// read reads a file and an environment.
func read(text string, environ ...string) (router.Config, error) {
	return router.ReadConfig(fstest.MapFS{fileName: {Data: []byte(text)}}, fileName, environ)
}

// valid is the shortest configuration.
const valid = "service: billing\nbroker: {url: 'memory://'}\nstore: {url: 'sqlite://billing.db'}\n"

func TestConfigIsReadAndDefaultsAreFilled(t *testing.T) {
	c, err := read(`
service: billing
broker:
  url: kafka://b1:9092,b2:9092/?order=key
  in_flight: 8
store: &store
  url: "sqlite://billing.db"
inbox:
  keys: [native, "metadata:event_id"]
  hold: {limit: 90s}
  scopes:
retry:
  max_attempts: 5
handlers:
  orders.v1:
    in_flight: 2
    renamed_from: orders
    retry: {backoff_min: 1h}
  plain:
`, "MILLPOND_STORE_MIGRATE=true", "MILLPOND_INBOX_SCOPES=topic, tenant:t", "MILLPOND_RETRY_MAX_ATTEMPTS=7", "MILLPOND_LOG_LEVEL=", "PATH=/bin")
	require.NoError(t, err)
	require.Equal(t, "billing", c.Service)
	require.Equal(t, router.BrokerConfig{URL: router.NewURL("kafka://b1:9092,b2:9092/?order=key"), Group: "billing", InFlight: 8}, c.Broker)
	require.Equal(t, router.StoreConfig{URL: router.NewURL("sqlite://billing.db"), Migrate: true}, c.Store)
	require.Equal(t, "native, then metadata event_id", c.Inbox.Keys.String())
	scopes, err := c.Inbox.Scopes.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "topic, tenant:t", string(scopes))
	require.Equal(t, middleware.HoldConfig{Limit: 90 * time.Second, MinPause: 20 * time.Millisecond, MaxPause: 2 * time.Second, Max: 64}, c.Inbox.Hold)
	require.Equal(t, 7, c.Inbox.Retry.MaxAttempts, "a variable counts more than the file")
	require.Equal(t, 24*time.Hour, c.Inbox.Retry.MaxAge)
	require.Equal(t, router.HandlerConfig{InFlight: 2, RenamedFrom: "orders", Retry: middleware.RetryPolicy{Backoff: middleware.BackoffConfig{Min: time.Hour}}}, c.Handlers["orders.v1"])
	require.Contains(t, c.Handlers, "plain")
	require.Equal(t, "info", c.Log.Level)
	require.Equal(t, 25*time.Second, c.DrainTimeout)
}

func TestEnvironmentAlone(t *testing.T) {
	c, err := router.ReadConfig(nil, "", []string{"MILLPOND_SERVICE=billing", "MILLPOND_BROKER_URL=memory://", "MILLPOND_STORE_URL=sqlite://b.db"})
	require.NoError(t, err)
	require.Equal(t, "billing", c.Service)

	_, err = router.ReadConfig(nil, "", nil)
	require.EqualError(t, err, `router: service is missing: name the program, or set MILLPOND_SERVICE
router: broker.url is missing: write the URL of the broker, such as memory:// or kafka://host:9092, or set MILLPOND_BROKER_URL
router: store.url is missing: write the URL of the store, such as sqlite://file.db or postgres://user@host/database, or set MILLPOND_STORE_URL`)
}

// An alias is what the last anchor of its name before it says, a section or a value.
func TestAliases(t *testing.T) {
	c, err := read(`%YAML 1.2
---
service: &name billing
broker: {url: 'memory://', group: *name}
store: {url: 'sqlite://billing.db'}
retry: &policy {max_attempts: &n 3, backoff_min: 2s}
handlers:
  a: {retry: *policy, in_flight: *n}
  b: &b {retry: &policy {max_attempts: &n 4}}
  c: *b
  d: {retry: *policy, in_flight: *n}
`)
	require.NoError(t, err)
	require.Equal(t, "billing", c.Broker.Group)
	require.Equal(t, 3, c.Handlers["a"].Retry.MaxAttempts)
	require.Equal(t, 3, c.Handlers["a"].InFlight)
	require.Equal(t, 4, c.Handlers["c"].Retry.MaxAttempts)
	require.Equal(t, 4, c.Handlers["d"].Retry.MaxAttempts)
	require.Zero(t, c.Handlers["d"].Retry.Backoff.Min)
	require.Equal(t, 4, c.Handlers["d"].InFlight)

	_, err = read(valid + "retry: *policy\nkeep: &policy {off: true}\n")
	require.EqualError(t, err, "millpond.yaml:4: retry refers to an anchor that is not before it: write the fields")
}

func TestNoFile(t *testing.T) {
	_, err := router.ReadConfig(fstest.MapFS{}, fileName, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "millpond config init > millpond.yaml")
}

// Every mistake has a line of its own: where, which field, which value, what to do.
func TestTenMistakesAreTenLines(t *testing.T) {
	_, err := read(`service: bill/ing
broker:
  url: memory
  in_flight: 0
  groop: billing
stores: {url: 'sqlite://x'}
store:
  url: 'sqlite://billing.db'
  migrate: yes
inbox:
  handler_timeout: 30
  keys: [uid]
  hold: {min_pause: 5s, max_pause: 1s}
retry:
  placement: park
drain_timeout: [1s]
`)
	require.EqualError(t, err, `millpond.yaml:1: service is "bill/ing": use a short name without '/' and control characters
millpond.yaml:3: broker.url is "memory": write scheme://…, such as memory:// or kafka://host:9092
millpond.yaml:4: broker.in_flight is "0": use a positive number
millpond.yaml:5: broker.groop is not a field: did you mean broker.group?
millpond.yaml:6: stores is not a field: did you mean store?
millpond.yaml:9: store.migrate is "yes": use true or false
millpond.yaml:11: inbox.handler_timeout is "30": use a duration such as 500ms, 30s or 24h
millpond.yaml:12: inbox.keys is "[uid]": "uid" is none of uuid, metadata:<field>, payload:<field>.<field>, native, broker_key and coordinates
millpond.yaml:13: inbox.hold.max_pause is 1s, less than the 5s of inbox.hold.min_pause: raise it
millpond.yaml:15: retry.placement is "park": did you mean parked?
millpond.yaml:16: drain_timeout is a list: write one value`)
	var mistakes *router.ConfigError
	require.ErrorAs(t, err, &mistakes)
	require.Len(t, mistakes.Problems, 11)
}

func TestMistakesInFiles(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"no YAML":               {"service: [a", "millpond.yaml:1: it is not YAML: sequence end token ']' not found"},
		"a tab":                 {"a:\n\tb: 1", "it is not YAML"},
		"a list":                {"- a", "millpond.yaml:1: is a list: write fields there: there are service, broker"},
		"a word":                {"service", "is one value: write fields there"},
		"a second document":     {valid + "---\na: 1\n", "millpond.yaml:5: a second document begins here: write one, without ---"},
		"twice":                 {valid + "service: b\n", "millpond.yaml:4: service is set in line 1 already: remove one"},
		"a handler twice":       {valid + "handlers: {orders.v1: {},\n orders.v1: {}}\n", "millpond.yaml:5: handlers.orders.v1 is set in line 4 already"},
		"a value for a section": {"broker: memory://", `millpond.yaml:1: broker is one value: write fields there: below broker there are url, group`},
		"a merge":               {"a: &a {url: x}\nbroker: {<<: *a}\n", "millpond.yaml:2: broker merges another mapping: write its fields here"},
		"no anchor":             {"service: *nothing", "millpond.yaml:1: service refers to an anchor that is nowhere: write the value"},
		"itself":                {"service: &a *a", "it is not YAML"},
		"a field elsewhere":     {valid + "in_flight: 3", "millpond.yaml:4: in_flight is not a field: did you mean broker.in_flight?"},
		"a field of nowhere":    {valid + "retry: {jitter: 3}", "millpond.yaml:4: retry.jitter is not a field: below retry there are max_attempts"},
		"a handler's field":     {valid + "handlers: {a: {retry: {max_atempts: 3}}}", "millpond.yaml:4: handlers.a.retry.max_atempts is not a field: did you mean handlers.a.retry.max_attempts?"},
		"a handler's value":     {valid + "handlers: {a: {retry: {max_attempts: 0}}}", `millpond.yaml:4: handlers.a.retry.max_attempts is "0": use a positive number`},
		"a handler's pauses":    {valid + "handlers: {a: {retry: {backoff_max: 1ms}}}", "millpond.yaml:4: handlers.a.retry.backoff_max is 1ms, less than the 1s of handlers.a.retry.backoff_min"},
		"one old name":          {valid + "handlers:\n  a: {renamed_from: c}\n  b: {renamed_from: c}\n", `millpond.yaml:6: handlers.b.renamed_from is "c" as for handler "a"`},
		"a comma in an item":    {valid + `inbox: {fingerprint: {headers: ["a,b"]}}`, `millpond.yaml:4: inbox.fingerprint.headers has the item "a,b" with a comma`},
		"a list of lists":       {valid + "inbox: {keys: [[a]]}", "millpond.yaml:4: inbox.keys is no list of values"},
		"a colon":               {valid + "inbox:\n  keys: [uuid, payload: id]\n", `millpond.yaml:5: inbox.keys has an item that is a mapping: put one with a colon into quotes, without a space, as in ["payload:id"]`},
		"a colon in braces":     {valid + "inbox: {keys: [payload:id]}", "inbox.keys has an item that is a mapping: put one with a colon into quotes"},
		"a colon in a line":     {valid + "inbox:\n  keys: payload: id\n", "millpond.yaml:5: it is not YAML: mapping value is not allowed in this context: put a value with a colon into quotes"},
		"a mapping":             {valid + "retry: {order: {metadata: id}}", "millpond.yaml:4: retry.order is a mapping: write one value, in quotes if it has a colon"},
		"a space in quotes":     {valid + "inbox: {keys: ['payload: id']}", `"payload: id" has a space: write "payload:id"`},
		"a space in a scope":    {valid + "inbox: {scopes: ['tenant: id']}", `"tenant: id" has a space: write "tenant:id"`},
		"a space in an order":   {valid + "retry: {order: 'metadata: id'}", "use key, or metadata:<field>"},
		"no keys":               {valid + "inbox: {keys: []}", `millpond.yaml:4: inbox.keys is "[]": name at least one, such as uuid`},
		"a key without a field": {valid + "inbox: {keys: metadata}", `millpond.yaml:4: inbox.keys is "[metadata]": "metadata" is none of`},
		"a field too many":      {valid + "inbox: {keys: 'uuid:x'}", `"uuid:x" is none of`},
		"a scope":               {valid + "inbox: {scopes: tenant}", `"tenant" is none of topic, event_type:<metadata field>`},
		"a header":              {valid + "inbox: {fingerprint: {headers: [traceparent]}}", `inbox.fingerprint.headers has "traceparent", which changes with each delivery: remove it`},
		"no fingerprint":        {valid + "inbox: {keys: coordinates, fingerprint: {off: true}}", "inbox.fingerprint.off is true with ids of coordinates"},
		"an order":              {valid + "retry: {order: customer}", `retry.order is "customer": use key, or metadata:<field>`},
		"an id":                 {valid + "inbox: {limits: {id: 100000}}", "use a number from 1 to"},
		"a cache":               {valid + "inbox: {cache_size: 0}", "use a positive number, or -1 for none"},
		"a number":              {valid + "inbox: {cache_size: 1e3}", `inbox.cache_size is "1e3": use a whole number such as 10`},
		"a time":                {valid + "drain_timeout: -1s", `drain_timeout is "-1s": use a positive duration`},
		"nothing":               {"", "millpond.yaml: service is missing"},
		"a comment":             {"# nothing\n", "millpond.yaml: service is missing"},
		"null":                  {"service: ~\n", "millpond.yaml: service is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(test.text)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestMistakesInVariables(t *testing.T) {
	for variable, says := range map[string]string{
		"MILLPOND_BROKER_IN_FLIGHT=many":           `MILLPOND_BROKER_IN_FLIGHT: broker.in_flight is "many": use a whole number such as 10`,
		"MILLPOND_BROKER_IN_FLIGHT=-1":             `MILLPOND_BROKER_IN_FLIGHT: broker.in_flight is "-1": use a positive number`,
		"MILLPOND_BROKER_ULR=memory://":            "MILLPOND_BROKER_ULR: there is no such variable: did you mean MILLPOND_BROKER_URL?",
		"MILLPOND_HANDLER_TIMEOUT=1s":              "MILLPOND_HANDLER_TIMEOUT: there is no such variable: did you mean MILLPOND_INBOX_HANDLER_TIMEOUT?",
		"MILLPOND_DEAD_LETTERS_QUEUE=x":            "MILLPOND_DEAD_LETTERS_QUEUE: there is no such variable: did you mean MILLPOND_DEAD_LETTERS_TOPIC?",
		"MILLPOND_STORE_PASSWORD=x":                "MILLPOND_STORE_PASSWORD: there is no such variable: there are MILLPOND_STORE_URL, MILLPOND_STORE_MIGRATE",
		"MILLPOND_HANDLERS_STOCK_IN_FLIGHT=":       "",
		"MILLPOND_HANDLERS_A_IN_FLIGHT=8":          "MILLPOND_HANDLERS_A_IN_FLIGHT: there is no such variable: handlers have none, write them into the file",
		"MILLPOND_HANDLERS=x":                      "MILLPOND_HANDLERS: is a section and no field: handlers have none, write them into the file",
		"MILLPOND_LOG=debug":                       "MILLPOND_LOG: is a section and no field: there are MILLPOND_LOG_LEVEL, MILLPOND_LOG_FORMAT",
		"MILLPOND_KAFKA_PASWORD=x":                 "MILLPOND_KAFKA_PASWORD: there is no such variable: there are MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD",
		"MILLPOND_NATS_PASSWROD=x":                 "MILLPOND_NATS_PASSWROD: there is no such variable: there are MILLPOND_NATS_USERNAME and MILLPOND_NATS_PASSWORD",
		"MILLPOND_NTAS_PASSWORD=x":                 "MILLPOND_NTAS_PASSWORD: there is no such variable: did you mean MILLPOND_NATS_PASSWORD?",
		"MILLPOND_NATS_USERNAME=x":                 "",
		"MILLPOND_BROKER_URL=sqlite://a.db":        `MILLPOND_BROKER_URL: broker.url is "sqlite://a.db": sqlite is one of the stores: write one of the brokers, such as memory:// or kafka://host:9092`,
		"MILLPOND_BROKER_URL=memory://?capacity=0": `MILLPOND_BROKER_URL: broker.url is wrong: memory: parameter "capacity" is "0": use a positive number`,
		"MILLPOND_LOG_LEVEL=loud":                  `MILLPOND_LOG_LEVEL: log.level is "loud": use debug, info, warn or error`,
		// Of others.
		"MILLPOND_TEST_POSTGRES_URL=x":                "",
		"MILLPOND_SOAK=1":                             "",
		"MILLPOND_SEED=1":                             "",
		"MILLPOND_KAFKA_PASSWORD=x":                   "",
		"MILLPOND_SERVICE_HOST=10.0.0.1":              "",
		"MILLPOND_PORT=tcp://10.0.0.1:80":             "",
		"MILLPOND_STORE_SERVICE_PORT_HTTP=80":         "",
		"MILLPOND_STORE_PORT_5432_TCP_ADDR=10.0.0.1":  "",
		"MILLPOND_DEPLOYMENT_COLOR=green":             "",
		"MILLPOND_STORE_PORT=tcp://postgres.svc:5432": "",
	} {
		t.Run(variable, func(t *testing.T) {
			_, err := read(valid, variable)
			if says == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, says)
		})
	}
}

// A program that fills the struct is told the same.
func TestConfigOfAProgram(t *testing.T) {
	c := router.Config{Service: "a", Broker: router.BrokerConfig{URL: router.NewURL("memory://"), InFlight: -1}, Store: router.StoreConfig{URL: router.NewURL("sqlite://x.db")}}
	require.EqualError(t, c.Validate(), `router: broker.in_flight is "-1": use a positive number`)
	_, err := router.New(t.Context(), c)
	var mistakes *router.ConfigError
	require.ErrorAs(t, err, &mistakes)
}
