package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/rotation"
)

// A run of some groups but those on brokers, too short for rates to mean something. What is
// counted is exact all the same.
func TestRun(t *testing.T) {
	var out, progress bytes.Buffer
	groups := rotation.Turn(t, 2, slices.DeleteFunc(slices.Clone(groupNames), onBroker)...)
	args := []string{"-groups", strings.Join(groups, ","), "-repeats", "1", "-cell", "5ms", "-workers", "1,2", "-waiting", "1000", "-history", "1000", "-backlog", "2000", "-completed", "1000", "-o", "json"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	var r struct {
		Groups []struct {
			Name string
			Rows []struct {
				Recipe  string
				Workers int
				Rate    float64  `json:"messages_per_second"`
				Trips   *float64 `json:"round_trips_per_message"`
				Commits *float64 `json:"commits_per_message"`
				WAL     *float64 `json:"wal_bytes_per_message"`
			}
		}
		Middleware []callResult
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]int)
	for _, g := range r.Groups {
		for _, row := range g.Rows {
			rows[g.Name]++
			where := g.Name + ": " + row.Recipe
			if row.Rate <= 0 {
				t.Errorf("%s: %v messages a second", where, row.Rate)
			}
			want, exact := exactly[where]
			switch {
			case !exact:
			case row.Trips == nil || row.Commits == nil || row.WAL == nil:
				t.Errorf("%s: something was not counted: %+v", where, row)
			case *row.Trips != want.trips || *row.Commits != want.commits:
				t.Errorf("%s: %v trips and %v commits, want %v", where, *row.Trips, *row.Commits, want)
			case want.commits == 0 && *row.WAL > 40: // the server's own notes; a row takes more
				t.Errorf("%s: %v bytes of WAL", where, *row.WAL)
			}
		}
	}
	for name, want := range map[string]int{"first": 20, "duplicates": 10, "far-first": 6, "far-duplicates": 5, "failures": 10, "database-sql": 6, "telemetry": 3, "sqlite": 6, "mysql": 8, "leases": 4, "mysql-leases": 4, "outputs": 6, "outputs-mysql": 6, "relay": 2, "relay-history": 2, "relay-snapshot": 2, "relay-prompt": 4, "purge": 3, "completed": 4, "purge-sqlite": 1, "purge-mysql": 1, "offered-few": 6, "offered-many": 3} {
		if slices.Contains(groups, name) && rows[name] != want {
			t.Errorf("%s: %d rows, want %d", name, rows[name], want)
		}
	}
	if slices.Contains(groups, "middleware") && len(r.Middleware) != 2 {
		t.Errorf("the inbox alone: %+v", r.Middleware)
	}
}

func onBroker(group string) bool {
	return slices.Contains([]string{"kafka", "rabbitmq", "sqs", "nats", "relay-kafka", "forwarder"}, group)
}

// One recipe of a broker is enough to see that its messages are counted.
func TestRunOnBrokers(t *testing.T) {
	want := map[string][]string{"kafka": {kafkaNoOp}, "rabbitmq": {kafkaNoOp}, "sqs": {kafkaNoOp}, "nats": {kafkaNoOp}, "forwarder": {forwarderDefault, forwarderQueue, relayPlain}, "relay-kafka": {kafkaUnkeyed, kafkaManyKeys, kafkaSomeKeys, kafkaSingleKey}}
	for _, group := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(want))...) {
		var out, progress bytes.Buffer
		args := []string{"-groups", group, "-repeats", "1", "-cell", "5ms"}
		if len(want[group]) == 1 {
			args = append(args, "-only", kafkaNoOp)
		}
		if err := run(t.Context(), args, &out, &progress); err != nil {
			t.Fatalf("%v\n%s", err, &progress)
		}
		for _, recipe := range want[group] {
			if !strings.Contains(out.String(), recipe) {
				t.Errorf("%s: %s was not measured:\n%s", group, recipe, &out)
			}
		}
	}
}

type cost struct{ trips, commits float64 }

var exactly = map[string]cost{
	"first: " + noInboxBare:    {3, 1},
	"first: " + noInboxRouter:  {3, 1},
	"first: " + millpondBare:   {3, 1},
	"first: " + millpondRouter: {3, 1},
	"first: " + suspectRouter:  {5, 2},
	"first: " + textbookRouter: {4, 1},
	"first: " + fiveStepRouter: {6, 2},

	"leases: " + noInboxLean:   {3, 1},
	"leases: " + leasedLean:    {5, 2},
	"leases: " + noInboxEffect: {3, 1},
	"leases: " + leasedEffect:  {5, 2},

	"telemetry: " + withoutTelemetry: {3, 1},
	"telemetry: " + unheardTelemetry: {3, 1},
	"telemetry: " + withTelemetry:    {3, 1},

	"duplicates: " + textbookDuplicate: {3, 0},
	"duplicates: " + notFlagged:        {1, 0},
	"duplicates: " + flagged:           {1, 0},
	"duplicates: " + fromCache:         {0, 0},

	"failures: " + failedAttempt: {4, 2},

	"outputs: " + withoutOutput: {3, 1},
	"outputs: " + withOutput:    {3, 1},
	"outputs: " + ownOutboxRow:  {4, 1},
}

func TestFlagsAreChecked(t *testing.T) {
	for flag, want := range map[string]string{
		"-groups=first,last": `-groups has "last"`,
		"-only=(":            "-only: ",
		"-workers=1,65":      `-workers has "65"`,
		"-workers=":          `-workers has ""`,
		"-repeats=0":         "-repeats is 0",
		"-cell=0":            "-cell is 0s",
		"-turns=0":           "-turns is 0",
		"-waiting=0":         "-waiting is 0",
		"-history=0":         "-history is 0",
		"-backlog=0":         "-backlog is 0",
		"-o=xml":             `-o is "xml"`,
	} {
		if err := run(t.Context(), []string{flag}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}
