package router

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file anew")

// paths are the paths of all fields of a struct and of those below it.
func paths(t reflect.Type, prefix string) []string {
	var all []string
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == "-" || !f.IsExported() {
			continue
		}
		path := join(prefix, f.Tag.Get("yaml"))
		all = append(all, path)
		if isText(reflect.New(f.Type).Elem()) {
			continue
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			all = append(all, paths(f.Type, path)...)
		case reflect.Map:
			all = append(all, path+".*")
			all = append(all, paths(f.Type.Elem(), path+".*")...)
		}
	}
	return all
}

func TestTheTableHasEveryField(t *testing.T) {
	var table []string
	variables := make(map[string]string)
	for _, f := range fields {
		table = append(table, f.path)
		if v := f.variable(); v != "" {
			require.Empty(t, variables[v], "%s and %s have one variable", f.path, variables[v])
			variables[v] = f.path
		}
		if !strings.HasPrefix(f.path, "handlers.*") {
			require.NotEmpty(t, f.about, f.path)
			require.True(t, f.section() || f.initial != "" || f.example != "", "%s has neither default nor example", f.path)
		}
	}
	there := paths(reflect.TypeFor[Config](), "")
	require.ElementsMatch(t, there, table)
	require.Equal(t, "MILLPOND_INBOX_HOLD_LIMIT", known("inbox.hold.limit").variable())
	require.Empty(t, known("inbox.hold").variable())
}

func known(path string) field {
	return fields[slices.IndexFunc(fields, func(f field) bool { return f.path == path })]
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

	// As it is, it is a configuration with all defaults.
	c, err := ReadConfig(fstest.MapFS{"f": {Data: []byte(starter)}}, "f", nil)
	require.NoError(t, err)
	plain := Config{Service: c.Service, Broker: BrokerConfig{URL: c.Broker.URL}, Store: StoreConfig{URL: c.Store.URL}}
	plain.setDefaults()
	plain.sources = c.sources
	require.Equal(t, plain, c)

	// So it is with every comment that is a field turned into one; what has no default
	// has its example then.
	comment := regexp.MustCompile(`(?m)^((?:  )*)# ((?:  )*)([a-z_]+):( [^#\n]*)?$`)
	all, err := ReadConfig(fstest.MapFS{"f": {Data: []byte(comment.ReplaceAllString(starter, "$1$2$3:$4"))}}, "f", nil)
	require.NoError(t, err)
	for _, f := range fields {
		if f.initial == "" || f.section() || strings.Contains(f.path, "*") {
			continue
		}
		require.Equal(t, f.of(reflect.ValueOf(plain), f.path).Interface(), f.of(reflect.ValueOf(all), f.path).Interface(), f.path)
	}
	require.Equal(t, "at least 16 secret characters", all.Inbox.Fingerprint.Key.Reveal())
	require.Equal(t, 3, all.Handlers["stock"].Retry.MaxAttempts)
	require.Equal(t, "key", all.Retry.Order)
}

func TestNearest(t *testing.T) {
	known := []string{"url", "group", "in_flight", "delivery_limit"}
	for name, want := range map[string]string{"ulr": "url", "in-flight": "in_flight", "InFlight": "in_flight", "xyz": "", "deliverylimits": "delivery_limit", "": ""} {
		got, ok := nearest(name, known)
		require.Equal(t, want, got, name)
		require.Equal(t, want != "", ok, name)
	}
}
