package router

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/middleware"
)

var update = flag.Bool("update", false, "write the golden file anew")

func TestEveryFieldIsExplained(t *testing.T) {
	variables := make(map[string]string)
	for _, f := range fields {
		if v := f.Variable(variablePrefix); v != "" {
			require.Empty(t, variables[v], "%s and %s have one variable", f.Path, variables[v])
			variables[v] = f.Path
		}
		if !strings.HasSuffix(f.Path, ".*") {
			require.NotEmpty(t, f.About, f.Path)
			require.True(t, f.Section || f.Default != "" || f.Example != "", "%s has neither default nor example", f.Path)
		}
	}
	require.Equal(t, "inbox.hold.limit", variables["MILLPOND_INBOX_HOLD_LIMIT"])
	require.NotContains(t, variables, "MILLPOND_INBOX_HOLD")
}

// A field of the program's that has no tag cannot be written in a file.
func TestEveryFieldHasATag(t *testing.T) {
	for _, section := range []reflect.Type{
		reflect.TypeFor[Config](), reflect.TypeFor[BrokerConfig](), reflect.TypeFor[StoreConfig](), reflect.TypeFor[RetryWorkerConfig](),
		reflect.TypeFor[HandlerConfig](), reflect.TypeFor[DestinationConfig](), reflect.TypeFor[middleware.Destination](), reflect.TypeFor[TelemetryConfig](), reflect.TypeFor[HTTPConfig](), reflect.TypeFor[LogConfig](),
		reflect.TypeFor[middleware.HoldConfig](), reflect.TypeFor[middleware.Limits](), reflect.TypeFor[middleware.BackoffConfig](),
	} {
		for f := range section.Fields() {
			if _, ok := f.Tag.Lookup("config"); f.IsExported() && !ok {
				require.Equal(t, "Program", f.Name, "%s.%s has no tag", section, f.Name)
			}
		}
	}
}

// Documents name fields and variables that there are.
func TestDocumentsNameFields(t *testing.T) {
	named := regexp.MustCompile("`(?:MILLPOND_[A-Z_]+[A-Z]|[a-z_]+(?:\\.[a-z_]+)+)(?:`|[:=] )")
	sections := make(map[string]bool)
	variables := make(map[string]bool)
	for _, f := range fields {
		sections[f.Path] = f.Section
		variables[variableOf(f, "kafka-eu")] = true
	}
	for _, name := range credentials {
		variables[variablePrefix+name] = true
	}
	checked := 0
	for _, document := range []string{"service.md", "failures.md", "operations.md", "brokers.md", "stores.md", "guarantees.md"} {
		text, err := os.ReadFile("../docs/" + document)
		require.NoError(t, err)
		for _, name := range named.FindAllString(string(text), -1) {
			name = strings.Trim(name, "`:= ")
			section, _, _ := strings.Cut(name, ".")
			switch {
			case strings.HasPrefix(name, variablePrefix):
				if !foreignVariable.MatchString(name) && !serviceLink.MatchString(name) {
					require.True(t, variables[name], "%s names %s", document, name)
				}
			case !sections[section]: // of something else
				continue
			default:
				_, ok := known(name)
				require.True(t, ok, "%s names %s", document, name)
			}
			checked++
		}
	}
	require.Greater(t, checked, 20)
}

func TestStarterConfig(t *testing.T) {
	const golden = "testdata/starter.yaml"
	starter := StarterConfig()
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(starter), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), starter, "run: go test ./router -run TestStarterConfig -update")

	// As it is, it is a configuration with all defaults but one.
	c, err := ReadConfig(fstest.MapFS{"f": {Data: []byte(starter)}}, "f", nil)
	require.NoError(t, err)
	plain := Config{Service: c.Service, Broker: BrokerConfig{URL: c.Broker.URL}, Store: StoreConfig{URL: c.Store.URL}}
	plain.Retention.Window = 7 * 24 * time.Hour // without it the tables grow for ever
	plain.setDefaults()
	require.Equal(t, plain.String(), c.String())

	// So it is with every comment that is a field turned into one; what has no default
	// has its example then.
	comment := regexp.MustCompile(`(?m)^((?:  )*)# ((?:  )*)([a-z_]+):( [^#\n]*)?$`)
	all, err := ReadConfig(fstest.MapFS{"f": {Data: []byte(comment.ReplaceAllString(starter, "$1$2$3:$4"))}}, "f", nil)
	require.NoError(t, err)
	for _, f := range fields {
		if f.Default == "" || f.Section || strings.Contains(f.Path, "*") {
			continue
		}
		require.Equal(t, f.Text(plain.value(f)), f.Text(all.value(f)), f.Path)
	}
	require.Equal(t, "at least 16 secret characters", all.FingerprintKey.Reveal())
	require.Equal(t, 3, all.Handlers["stock"].Retry.MaxAttempts)
	require.Equal(t, "key", all.Inbox.Retry.Order)
	require.Equal(t, []string{"shipments", "returns"}, all.Destinations[exampleDestination].Topics)
}

func TestNearest(t *testing.T) {
	known := []string{"url", "group", "in_flight", "delivery_limit"}
	for name, want := range map[string]string{"ulr": "url", "in-flight": "in_flight", "InFlight": "in_flight", "xyz": "", "deliverylimits": "delivery_limit", "": ""} {
		got, ok := field.Nearest(name, known)
		require.Equal(t, want, got, name)
		require.Equal(t, want != "", ok, name)
	}
}
