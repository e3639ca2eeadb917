package telemetry_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

const page = "../../docs/tracing.md"

// The page has everything that the code makes, and nothing else.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	made, said := takeInventory(t), readPage(t, string(text))
	require.Equal(t, made.spans, said.spans, "spans, and their kinds")
	for operation := range made.spans {
		require.Equal(t, names(made.onSpans[operation]), names(said.onSpans[operation]), "attributes of the span %q", operation)
	}
	require.Equal(t, slices.Sorted(maps.Keys(made.metrics)), slices.Sorted(maps.Keys(said.metrics)), "metrics")
	for name, m := range made.metrics {
		require.Equal(t, m.kind, said.metrics[name].kind, name)
		require.Equal(t, m.unit, said.metrics[name].unit, name)
		require.Equal(t, names(m.attributes), names(said.metrics[name].attributes), "attributes of the metric %s", name)
	}
	for link := range made.links {
		require.Contains(t, string(text), "`"+link+"`", "a value of millpond.link")
	}
}

// Values that people look for are on the page, too.
func TestPageHasValues(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var values []string
	for _, v := range []middleware.Result{
		middleware.ResultCompleted, middleware.ResultDuplicate, middleware.ResultQuarantined, middleware.ResultParked, middleware.ResultGivenBack,
		middleware.ResultFailed, middleware.ResultFinal, middleware.ResultPanicked, middleware.ResultNotNow,
	} {
		values = append(values, string(v))
	}
	for _, v := range []stores.Class{
		stores.ClassTransient, stores.ClassPermanent, stores.ClassContention, stores.ClassTimeout, stores.ClassPanic, stores.ClassConduct,
		stores.ClassOutputs, stores.ClassCrash, stores.ClassInterrupted, stores.ClassUnknown, stores.ClassUnreadable, stores.ClassUnconfirmed, stores.ClassOrder,
	} {
		values = append(values, string(v))
	}
	for _, v := range []stores.Reason{
		stores.ReasonConflict, stores.ReasonNoKey, stores.ReasonKeyTooLong, stores.ReasonUndecodable, stores.ReasonTooLarge,
		stores.ReasonAckedEarly, stores.ReasonTxCommitted, stores.ReasonStale,
	} {
		values = append(values, string(v))
	}
	for _, v := range []middleware.SkipReason{
		middleware.SkipCompleted, middleware.SkipChanged, middleware.SkipInFlight, middleware.SkipLate, middleware.SkipNotNow,
		middleware.SkipNoHandler, middleware.SkipStopping,
	} {
		values = append(values, string(v))
	}
	values = append(values, "commit_unknown", "not_committed", "unavailable", "not_migrated", "canceled", "_OTHER")
	for outcome := stores.Claimed; outcome.String() != stores.Outcome(0).String(); outcome++ {
		values = append(values, outcome.String())
	}
	for _, value := range values {
		require.Contains(t, string(text), "`"+value+"`")
	}
}

// The dashboard asks for metrics that there are, by the names that Prometheus gives them.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../examples/tracing/dashboard.json")
	require.NoError(t, err)
	require.True(t, json.Valid(text))
	known := make(map[string]bool)
	for name, m := range takeInventory(t).metrics {
		name = strings.ReplaceAll(name, ".", "_")
		if m.unit == "s" {
			name += "_seconds"
		}
		switch m.kind {
		case "counter":
			name += "_total"
		case "histogram":
			name += "_bucket"
		}
		known[name] = true
	}
	found := regexp.MustCompile(`\b(?:millpond|messaging)(?:_[a-z]+)+_?(?:total|bucket|seconds|flight)\b`).FindAllString(string(text), -1)
	require.NotEmpty(t, found)
	for _, name := range found {
		require.True(t, known[name], name)
	}
}

func names(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

var (
	inCode = regexp.MustCompile("`([^`]+)`")
	group  = regexp.MustCompile(`\*(\w+)\*`) // of labels
)

// readPage reads the tables of the page.
func readPage(t *testing.T, text string) *inventory {
	said := newInventory()
	groups := make(map[string]map[string]bool)
	labels := func(cell string) map[string]bool {
		set := make(map[string]bool)
		for _, m := range group.FindAllStringSubmatch(cell, -1) {
			require.Contains(t, groups, m[1])
			maps.Copy(set, groups[m[1]])
		}
		for _, m := range inCode.FindAllStringSubmatch(cell, -1) {
			set[m[1]] = true
		}
		return set
	}
	for _, row := range rows(text, "## Spans") {
		operation, _, _ := strings.Cut(code(row[0]), " ")
		said.spans[operation] = make(map[string]bool)
		for kind := range strings.SplitSeq(row[1], ", ") {
			said.spans[operation][strings.ToLower(kind)] = true
		}
		said.onSpans[operation] = make(map[string]bool)
	}
	for _, row := range rows(text, "### Attributes") {
		for _, m := range inCode.FindAllStringSubmatch(row[1], -1) {
			require.Contains(t, said.onSpans, m[1], "a span of the attribute %s", row[0])
			said.onSpans[m[1]][code(row[0])] = true
		}
	}
	for _, row := range rows(text, "### Labels") {
		groups[group.FindStringSubmatch(row[0])[1]] = labels(row[1])
	}
	for _, row := range rows(text, "## Metrics") {
		said.metrics[code(row[0])] = instrument{kind: row[1], unit: code(row[2]), attributes: labels(row[3])}
	}
	return said
}

func code(cell string) string {
	if m := inCode.FindStringSubmatch(cell); m != nil {
		return m[1]
	}
	return ""
}

// rows returns the rows of the tables beneath a heading, without their heads.
func rows(text, heading string) [][]string {
	_, text, _ = strings.Cut(text, "\n"+heading+"\n")
	text, _, _ = strings.Cut(text, "\n#")
	var rows [][]string
	body := false
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			body = false
		case strings.HasPrefix(cells[0], "--"):
			body = true
		case body:
			rows = append(rows, cells)
		}
	}
	return rows
}
