package main

import "fmt"

// goalWorkers is how many workers the goals speak of, unless they say otherwise.
const goalWorkers = 16

// goal is what a ratio shall reach: at least the floor, better the aim, if there is one.
// Without another recipe to compare with it is what the rate shall reach, in messages a
// second.
type goal struct {
	what                   string
	group, recipe, against string
	workers                int
	floor, aim             figure
	cpu                    bool // the processor time shall reach it as well
}

var goals = []goal{
	{"millpond / no inbox, bare", "first", millpondBare, noInboxBare, goalWorkers, 0.78, 0.84, true},
	{"millpond / no inbox, same router", "first", millpondRouter, noInboxRouter, goalWorkers, 0.80, 0.85, false},
	{"queued / no inbox, same router", "first", queuedRouter, noInboxRouter, goalWorkers, 1, 1.2, false},
	{"the same with network time", "far-first", millpondRouter, noInboxRouter, 1, 0.9, 1, false},
	{"millpond / five-step", "first", millpondRouter, fiveStepRouter, goalWorkers, 1.8, 2.2, true},
	{"SQLite: millpond / no inbox", "sqlite", millpondRouter, noInboxRouter, goalWorkers, 0.85, 0.95, false},
	{"duplicate, not flagged / claim by hand", "duplicates", notFlagged, byHandDuplicate, goalWorkers, 0.9, 1.1, false},
	{"duplicate, flagged / claim by hand", "duplicates", flagged, byHandDuplicate, goalWorkers, 1.4, 1.7, false},
	{"duplicates with 1 new in 8 / claim by hand", "duplicates", mixedInbox, mixedByHand, goalWorkers, 0.9, 1.1, false},
	{"with network time, duplicate, not flagged / textbook", "far-duplicates", notFlagged, textbookDuplicate, goalWorkers, 1.4, 2, false},
	{"with network time, duplicate, flagged / textbook", "far-duplicates", flagged, textbookDuplicate, goalWorkers, 2.5, 3, false},
	{"duplicate, cache / textbook", "duplicates", fromCache, textbookDuplicate, goalWorkers, 100, 200, false},
	{"retry worker, messages a second", "failures", retryWorker, "", goalWorkers, 2000, 5000, false},
	{"retry worker, others not due / none", "failures", retryCrowded, retryWorker, goalWorkers, 0.9, 1, false},
	{"partitions, 1 % poison / none", "failures", onePercent, withoutPoison, goalWorkers, 0.9, 1, false},
	{"silent subscriber, after a clean end: first 256 / later", "failures", firstOfProcess, laterOfProcess, goalWorkers, 0.8, 0.9, false},
	{"lease, effect of 20 ms: millpond / no inbox", "leases", leasedEffect, noInboxEffect, goalWorkers, 0.8, 0.9, false},
	{"lease, lean handler: the same", "leases", leasedLean, noInboxLean, goalWorkers, 0.2, 0.3, false},
	{"batches / no inbox, 4 connections", "batches", leanBatches, leanAlone, 128, 2.6, 3.3, true},
	{"the same with three statements", "batches", threeBatches, threeAlone, 128, 1.7, 2.2, true},
	{"the same with 1 % failing", "batches", failingShared, failingAlone, 128, 2, 0, true},
	{"queued, batches / no inbox", "batches", queuedBatches, leanAlone, 128, 7.5, 10, true},
	{"queued with 1 % failing", "batches", queuedFailing, failingAlone, 128, 4.5, 0, true},
	{"SQLite: batches / inbox alone", "batches-sqlite", sqliteShared, sqliteOwn, 128, 4, 0, false},
	{"MariaDB: batches / no inbox, 4 connections", "batches-mariadb", leanBatches, leanAlone, 128, 1.4, 0, false},
	{"MySQL: the same", "batches-mysql", leanBatches, leanAlone, 128, 1.4, 0, false},
	{"few in flight: with batches / without", "batches", ownBatches, ownInbox, 4, 0.95, 0, false},
	{"telemetry with SDK and batch exporter / without", "telemetry", withTelemetry, withoutTelemetry, goalWorkers, 0.9, 0, false},
	{"Kafka, no-op: millpond / watermill-kafka", "kafka", kafkaNoOp, officialNoOp, partitionCount, 1, 0, false},
	{"Kafka, 2 ms: the same", "kafka", kafkaBusy, officialBusy, partitionCount, 0.95, 0, false},
	{"Kafka, 2 ms, 32 in flight: the same", "kafka", kafkaWide, officialBusy, partitionCount, 15, 0, false},
	{"Kafka, publish in batches: the same", "kafka", kafkaPublish, officialPublish, partitionCount, 10, 0, false},
	{"RabbitMQ, no-op: millpond / watermill-amqp", "rabbitmq", rabbitNoOp, officialRabbitNoOp, queueInFlight, 1, 0, false},
	{"RabbitMQ, 2 ms: the same", "rabbitmq", rabbitBusy, officialRabbitBusy, queueInFlight, 15, 0, false},
	{"RabbitMQ, publish in batches: the same", "rabbitmq", rabbitPublish, officialRabbitPublish, queueInFlight, 5, 0, false},
	{"SQS, 2 ms: millpond / watermill-aws", "sqs", sqsBusy, officialSQSBusy, queueInFlight, 10, 0, false},
	{"NATS, no-op: millpond / watermill-nats", "nats", natsNoOp, officialNATSNoOp, queueInFlight, 0.95, 0, false},
	{"NATS, 2 ms: the same", "nats", natsBusy, officialNATSBusy, queueInFlight, 10, 0, false},
	{"MariaDB: millpond / no inbox", "mysql", millpondRouter, noInboxRouter, goalWorkers, 0.7, 0.8, false},
	{"MariaDB, the program's *sql.DB: the same", "mysql", millpondBorrowed, noInboxRouter, 64, 0.6, 0, false},
	{"PostgreSQL through database/sql / through pgx", "database-sql", millpondSQL, millpondRouter, goalWorkers, 0.95, 1, false},
	{"PostgreSQL: one output / none", "outputs", withOutput, withoutOutput, goalWorkers, 0.75, 0.85, false},
	{"PostgreSQL: one output / the handler's own outbox row", "outputs", withOutput, ownOutboxRow, goalWorkers, 1.1, 1.2, false},
	{"MariaDB: one output / none", "outputs-mysql", withOutput, withoutOutput, goalWorkers, 0.7, 0.8, false},
	{"MariaDB: one output / the handler's own outbox row", "outputs-mysql", withOutput, ownOutboxRow, goalWorkers, 1.1, 1.2, false},
	{"handlers whose commits wake relays elsewhere / that do not", "relay-wake", wakeOn, wakeOff, goalWorkers, 0.85, 0.95, false},
	{"relay / Watermill's Forwarder, default schema", "forwarder", relayPlain, forwarderDefault, 1, 3, 8, false},
	{"relay / Watermill's Forwarder, queue schema", "forwarder", relayPlain, forwarderQueue, 1, 2, 4, false},
	{"relay into a large history / an empty one", "relay-history", relayArchive, relayHistory, 1, 0.9, 1, false},
	{"relay under an old snapshot / without", "relay-snapshot", relaySnapshot, relayPlain, 1, 0.7, 0.9, false},
	{"purge at full speed, rows a second", "purge", purgeFast, "", goalWorkers, 50_000, 0, false},
	{"claims, a purge at its pace / none", "purge", claimsPurged, claimsAlone, goalWorkers, 0.85, 0.95, false},
	{"claims, time-ordered ids, many completed / none", "completed", claimsFull, claimsEmpty, goalWorkers, 0.9, 1, false},
	{"relay to Kafka, 5,000 order keys / none", "relay-kafka", kafkaManyKeys, kafkaUnkeyed, 1, 0.5, 0.8, false},
}

// prompt is a goal for a latency in milliseconds, or for how much longer it is than another
// recipe's. Less is better.
type prompt struct {
	what                   string
	group, recipe, against string
	workers                int
	of                     func(*row) figure
	floor, aim             figure
}

func p50(r *row) figure { return r.P50 }
func p99(r *row) figure { return r.P99 }

var prompts = []prompt{
	{"commit to publish in the process at 2,000/s, p50", "relay-prompt", committedToPublished, "", goalWorkers, p50, 5, 1},
	{"2 messages a second, p50, batches - inbox alone", "offered-few", batchesTwo, inboxTwo, manyInFlight, p50, 0.3, unknown},
	{"20 messages a second, p50, batches - inbox alone", "offered-few", batchesTwenty, inboxTwenty, manyInFlight, p50, 0.3, unknown},
	{"100 messages a second, p50, batches - inbox alone", "offered-few", batchesHundred, inboxHundred, manyInFlight, p50, 0.3, unknown},
	{"batches at 1.3 times what the inbox alone carries, p99", "offered-many", batchesOverload, "", manyInFlight, p99, 50, unknown},
}

// What a call of the inbox may cost beside the store's.
const (
	mostMicroseconds = 5
	mostAllocs       = 11
)

// goalResult is a goal and what came of it.
type goalResult struct {
	What    string `json:"what"`
	Floor   string `json:"floor"`
	Aim     string `json:"aim"`
	Rate    span   `json:"rate_ratio"` // messages a second, of a goal that compares nothing
	CPU     span   `json:"cpu_ratio"`
	Verdict string `json:"verdict"`
	shown   string // instead of the ratios
}

// judge compares a report with the goals. What was not measured is left out.
func judge(r *report) []goalResult {
	var results []goalResult
	for _, goal := range goals {
		for _, table := range r.Groups {
			if table.Name != goal.group {
				continue
			}
			of := table.row(goal.recipe, goal.workers)
			switch {
			case of == nil:
			case goal.against == "":
				results = append(results, goal.result(of.rates(), spanOf(nil)))
			case table.row(goal.against, goal.workers) != nil:
				results = append(results, goal.result(table.ratios(of, goal.against)))
			}
		}
	}
	for _, goal := range prompts {
		table := r.group(goal.group)
		of, against := table.row(goal.recipe, goal.workers), table.row(goal.against, goal.workers)
		switch {
		case of == nil:
		case goal.against == "":
			results = append(results, goal.result(goal.of(of)))
		case against != nil:
			results = append(results, goal.result(goal.of(of)-goal.of(against)))
		}
	}
	for _, call := range r.Middleware {
		if call.Name == inboxFirstSight {
			results = append(results, judgeCall(call))
		}
	}
	return results
}

func (g goal) result(rate, cpu span) goalResult {
	counts := rate.Median
	if g.cpu {
		counts = min(counts, cpu.Median)
	}
	verdict := "missed"
	switch {
	case g.aim > 0 && counts >= g.aim:
		verdict = "aim reached"
	case counts >= g.floor:
		verdict = "floor reached"
	}
	aim := g.aim
	if aim == 0 {
		aim = unknown
	}
	return goalResult{
		What:  fmt.Sprintf("%s, %s", g.what, plural(g.workers, "worker")),
		Floor: g.floor.text(), Aim: aim.text(),
		Rate: rate, CPU: cpu, Verdict: verdict,
	}
}

func (p prompt) result(took figure) goalResult {
	verdict := "missed"
	switch {
	case took <= p.aim:
		verdict = "aim reached"
	case took <= p.floor:
		verdict = "floor reached"
	}
	aim := unknown.text()
	if p.aim.known() {
		aim = "≤ " + p.aim.text() + " ms"
	}
	return goalResult{
		What:  fmt.Sprintf("%s, %s", p.what, plural(p.workers, "worker")),
		Floor: "≤ " + p.floor.text() + " ms", Aim: aim,
		Rate: spanOf(nil), CPU: spanOf(nil), Verdict: verdict,
		shown: took.text() + " ms",
	}
}

func judgeCall(call callResult) goalResult {
	us := call.Time.Median / 1e3
	verdict := "missed"
	if us <= mostMicroseconds && call.Allocs <= mostAllocs {
		verdict = "reached"
	}
	return goalResult{
		What:  "the inbox alone, first sight, 1 kB payload",
		Floor: fmt.Sprintf("≤ %d µs, ≤ %d allocs", mostMicroseconds, mostAllocs),
		Rate:  spanOf(nil), CPU: spanOf(nil), Verdict: verdict,
		shown: fmt.Sprintf("%s µs, %s allocs", us.text(), call.Allocs.text()),
	}
}
