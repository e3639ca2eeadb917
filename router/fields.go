package router

import (
	"reflect"
	"slices"
	"strings"
)

// field is what is known of a field of a configuration. The starter file, the names of
// variables, defaults and checks all come from here.
type field struct {
	path    string // in a file; * stands for the name of a handler
	about   string
	initial string // the default, as in a file; "" if there is none
	example string // what the starter file shows if there is no default

	missing string                 // what to do if a required field is; "" if it is not required
	check   func(value any) string // what to do if the value is wrong; nil: all are right
}

// fields are all fields, in the order of a file. A section stands before its fields.
var fields = append([]field{
	{
		path: "service", example: "my-service",
		about:   "The name of the program. With the name of a handler it forms the consumer, under which effects are counted once. Programs that share a database must not share it.",
		missing: "name the program", check: serviceName,
	},

	{path: "broker", about: "Where messages come from."},
	{
		path: "broker.url", example: "memory://",
		about:   "The broker. The program must import its adapter, one of brokers/memory, brokers/kafka, brokers/amqp, brokers/sqs and brokers/nats, whose documentation lists the parameters. Passwords belong into the environment.",
		missing: "write the URL of the broker, such as memory:// or kafka://host:9092", check: urlOf("brokers", "memory:// or kafka://host:9092"),
	},
	{
		path: "broker.group", example: "my-service",
		about: "Each handler has a group of its own, named <group>.<handler>, so that two handlers of one topic both get each message. Processes of one service share the groups. Default: the service.",
	},
	{
		path: "broker.in_flight", initial: "1", check: positive,
		about: "How many messages of one handler may be in flight at a time. 1 keeps the broker's order. Each takes a connection of the store. (Kafka: within this, in_flight_per_partition of the URL, 1 by default, keeps the order of a partition.)",
	},
	{
		path: "broker.delivery_limit", example: "20", check: positive,
		about: "How often the broker delivers a message before it drops it, for brokers that cannot tell. Needed for the placement redelivered only.",
	},

	{path: "store", about: "Where effects are counted once, and failed messages kept: the database of the handlers."},
	{
		path: "store.url", example: "sqlite://my-service.db",
		about:   "The store. The program must import its adapter, one of stores/postgres, stores/postgres/sqldb, stores/mysql and stores/sqlite. A pool needs a connection for each message in flight, for each retry (retry_worker.concurrency) of each handler, and one more: postgres://app@db/app?pool_max_conns=20, mysql://app@db/app?max_open_conns=20.",
		missing: "write the URL of the store, such as sqlite://file.db or postgres://user@host/database", check: urlOf("stores", "sqlite://file.db or postgres://user@host/database"),
	},
	{
		path: "store.migrate", initial: "false",
		about: "Create and update millpond's tables when the service starts, instead of by millpond migrate up. (SQLite's are created when the file is opened, unless its URL says migrate=never.)",
	},

	{path: "inbox", about: "How a message is recognized, and how long things may take."},
	{
		path: "inbox.keys", initial: "[uuid]", check: keyList,
		about: "Where the id of a message is: uuid (Watermill's), metadata:<field>, payload:<field>.<field> (of JSON), native (the broker's), broker_key, coordinates. With several the first that a message has counts; see docs/guarantees.md before you use more than one.",
	},
	{
		path: "inbox.scopes", example: "[topic]", check: scopeList,
		about: "Within what ids are unique: topic, event_type:<metadata field>, tenant:<metadata field>. Default: everything.",
	},
	{
		path: "inbox.handler_timeout", initial: "30s", check: positiveTime,
		about: "The deadline of a handler. One that returns later has failed.",
	},
	{path: "inbox.commit_timeout", initial: "10s", check: positiveTime, about: "How long a commit may take."},
	{path: "inbox.claim_timeout", initial: "10s", check: positiveTime, about: "How long another question to the store may take, the wait for a connection included."},
	{path: "inbox.record_timeout", initial: "30s", check: positiveTime, about: "How long it may take to write down a failure, or a message in quarantine, with what is kept of it."},
	{
		path: "inbox.accept_topics", initial: "false",
		about: "Let handlers read other topics than those that they are registered for. Set it for one start when a handler moves.",
	},
	{
		path: "inbox.cache_size", initial: "10000", check: positiveOrOff,
		about: "How many completed messages are remembered in the process, so that their duplicates cost nothing. -1: none.",
	},
	{path: "inbox.cache_ttl", initial: "10m", check: positiveTime, about: "How long they are remembered."},
	{path: "inbox.hold", about: "How a message waits that cannot be decided now: another delivery of it runs, or the store is down."},
	{
		path: "inbox.hold.limit", initial: "5m", check: positiveTime,
		about: "How long, before it is given back to the broker.",
	},
	{path: "inbox.hold.min_pause", initial: "20ms", check: positiveTime, about: "The first pause between two questions."},
	{path: "inbox.hold.max_pause", initial: "2s", check: positiveTime, about: "The longest pause."},
	{path: "inbox.hold.max", initial: "64", check: positive, about: "How many such messages stop the intake of a handler."},
	{path: "inbox.fingerprint", about: "What notices another message under a used id."},
	{path: "inbox.fingerprint.off", initial: "false", about: "Every message under a completed id is a duplicate, whatever it says."},
	{
		path: "inbox.fingerprint.headers", example: "[event_type]", check: stableHeaders,
		about: "Metadata fields that say what a message is, besides its payload and cqrs' name: whatever your handlers decide by. Without them {} with event_type=charge is a duplicate of {} with event_type=noop, and is acked unseen.",
	},
	{
		path: "inbox.fingerprint.key", example: "at least 16 secret characters", check: longSecret,
		about: "A secret that fingerprints are keyed with, for payloads so short that they could be guessed. Set its variable rather than writing it here.",
	},
	{path: "inbox.fingerprint.key_id", initial: "1", check: keyNumber, about: "The number of the key. Another key needs another number."},
	{path: "inbox.limits", about: "What a message may be at most. What is larger goes to quarantine."},
	{path: "inbox.limits.id", initial: "255", check: idBytes, about: "Bytes of its id."},
	{path: "inbox.limits.payload", initial: "16777216", check: positive, about: "Bytes of its payload."},
	{path: "inbox.limits.metadata", initial: "1000", check: positive, about: "Number of its metadata fields."},
	{path: "inbox.limits.metadata_bytes", initial: "262144", check: positive, about: "Bytes of all of them."},

	{path: "retry", about: "What becomes of a message whose handler fails. docs/failures.md tells more."},
	{path: "retry.max_attempts", initial: "10", check: positive, about: "How many attempts may fail. After the last one the message has failed for good and is kept as a dead letter."},
	{path: "retry.max_age", initial: "24h", check: positiveTime, about: "How long after the first failure there may be another attempt."},
	{path: "retry.max_uncounted", initial: "100", check: positive, about: "How many attempts may be interrupted by what is not the handler's fault."},
	{path: "retry.max_immediate", initial: "3", check: positiveOrOff, about: "How often an attempt that lost a concurrency conflict is repeated at once. -1: never."},
	{path: "retry.backoff_min", initial: "1s", check: positiveTime, about: "The pause after the first failure. It doubles with each."},
	{path: "retry.backoff_max", initial: "10m", check: positiveTime, about: "The longest pause."},
	{
		path: "retry.placement", initial: "parked", check: oneOf("parked", "redelivered"),
		about: "Who keeps a failed message: parked, the store, so that those behind it flow on; redelivered, the broker, which counts its deliveries.",
	},
	{
		path: "retry.order", example: "key", check: orderKey,
		about: "Keep later messages behind a failed one that has the same key: key (the broker's, such as Kafka's) or metadata:<field>. Default: no order.",
	},
	{path: "retry.order_wait", initial: "1h", check: positiveTime, about: "How long later messages of a key wait beyond the time of a failed one that the broker was to deliver again and did not. Then it is taken for lost."},

	{path: "keep", about: "What is kept of failed messages until they are completed."},
	{path: "keep.off", initial: "false", about: "Keep neither payload nor metadata. Such messages cannot be parked: the broker redelivers them."},
	{path: "keep.max_bytes", example: "1000000", check: positive, about: "The largest message that is kept. Default: what the limits let pass."},

	{path: "dead_letters", about: "Copies of messages that have failed for good, beside the row that is kept of each."},
	{path: "dead_letters.topic", example: "my-service.dead", about: "Where they are published, on the same broker. Default: nowhere."},

	{path: "retry_worker", about: "What runs parked messages again, when they are due."},
	{path: "retry_worker.off", initial: "false", about: "Leave that to other processes of the service."},
	{path: "retry_worker.concurrency", initial: "8", check: positive, about: "How many of one handler run at once. Each takes a connection of the store."},
	{path: "retry_worker.poll_interval", initial: "1s", check: positiveTime, about: "How often the store is asked when nothing was due."},

	{path: "handlers", about: "What single handlers have for themselves, by their names in the program. The environment has no variables for these."},
	{path: "handlers.*", about: ""},
	{path: "handlers.*.group", example: "stock-readers", about: "The group at the broker, in place of <group>.<handler>: the name of one that is there already."},
	{path: "handlers.*.in_flight", example: "8", check: positive, about: "As broker.in_flight."},
	{path: "handlers.*.renamed_from", example: "inventory", about: "The name that the handler had when its consumer was made. Without it a renamed handler runs every message again that comes again."},
	{path: "handlers.*.retry", about: "As retry, for the fields that are set here."},
}, append(handlerRetry(), []field{
	{
		path: "drain_timeout", initial: "25s", check: positiveTime,
		about: "How long handlers that run may take to finish when the service stops. Those that do not are rolled back by then, and their messages come again. Keep it below what the service manager grants (Kubernetes: terminationGracePeriodSeconds, 30).",
	},

	{path: "log", about: "The log, on the standard error."},
	{path: "log.level", initial: "info", check: oneOf("debug", "info", "warn", "error"), about: "debug, info, warn or error."},
	{path: "log.format", initial: "text", check: oneOf("text", "json"), about: "text or json."},

	{path: "telemetry", about: "Spans and metrics, by OpenTelemetry. The program must import router/telemetry; docs/tracing.md tells more."},
	{path: "telemetry.on", initial: "false", about: "Make them. Spans go where the program's tracer provider sends them, metrics where its meter provider does, and to /metrics."},
	{
		path: "telemetry.relation", initial: "parent", check: oneOf("parent", "link"),
		about: "How a delivery's span stands to that of the message: parent, so that one trace shows its whole way, or link, so that each delivery begins a trace.",
	},

	{path: "http", about: "Questions about the service itself: /livez, /readyz, and with telemetry /metrics."},
	{
		path: "http.listen", example: "127.0.0.1:9464", check: hostPort,
		about: "Where it answers. Nobody is asked who they are: keep it on a loopback or an internal address. Default: nowhere.",
	},

	{
		path: "require_tls", initial: "false",
		about: "Refuse URLs by which a password can travel without verified TLS to an address that is not a loopback. Otherwise it is a warning.",
	},
}...)...)

// handlerRetry are the fields of retry for one handler.
func handlerRetry() []field {
	checks := map[string]func(any) string{
		"max_attempts": positive, "max_age": positiveTime, "max_uncounted": positive, "max_immediate": positiveOrOff,
		"backoff_min": positiveTime, "backoff_max": positiveTime,
		"placement": oneOf("parked", "redelivered"), "order": orderKey, "order_wait": positiveTime,
	}
	examples := map[string]string{"max_attempts": "3", "backoff_min": "10s"} // that the starter file shows
	var copies []field
	for _, tag := range tags(reflect.TypeFor[RetryConfig]()) {
		copies = append(copies, field{path: "handlers.*.retry." + tag, check: checks[tag], example: examples[tag]})
	}
	return copies
}

// tags are the names of a struct's fields in a file.
func tags(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if tag := f.Tag.Get("yaml"); tag != "-" {
			names = append(names, tag)
		}
	}
	return names
}

// section reports whether other fields stand below this one.
func (f field) section() bool {
	return slices.ContainsFunc(fields, func(other field) bool { return strings.HasPrefix(other.path, f.path+".") })
}

// below returns the names of the fields of a section, "" being the whole file.
func below(path string) []string {
	prefix := path
	if path != "" {
		prefix += "."
	}
	var names []string
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f.path, prefix); ok && name != "*" && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// variable is the name of the environment variable of a field, "" if it has none.
func (f field) variable() string {
	if f.section() || strings.Contains(f.path, "*") {
		return ""
	}
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(f.path, ".", "_"))
}

// of returns the field of a configuration, or of a part of it.
func (f field) of(in reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		in = fieldNamed(in, name)
	}
	return in
}
