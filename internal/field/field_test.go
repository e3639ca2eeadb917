package field_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/field"
)

type pauses struct {
	Min time.Duration `config:"pause_min" default:"1s" check:"positive"`
	Max time.Duration `config:"pause_max" default:"10s" check:"positive" least:"Min"`
}

type one struct {
	Level string `config:"level" default:"info" check:"info|warn"`
	N     int    `config:"n" check:"1..9"`
}

type config struct {
	Name   string         `config:"name" missing:"name it" about:"Its name."`
	Pauses pauses         `config:""`
	Late   []string       `config:"/section.late" example:"[a]"`
	Part   one            `config:"section"`
	Size   int            `config:"size" default:"5" check:"off"`
	Ever   time.Duration  `config:"for_ever" default:"1h" check:"off"`
	Only   time.Duration  `config:"-" default:"3s" check:"positive"`
	Each   map[string]one `config:"each"`
	Hidden func()
}

func TestFieldsOfAStruct(t *testing.T) {
	var paths, variables []string
	for _, f := range field.Of(reflect.TypeFor[config]()) {
		paths = append(paths, f.Path)
		if v := f.Variable("X_"); v != "" {
			variables = append(variables, v)
		}
	}
	require.Equal(t, []string{
		"name", "pause_min", "pause_max", "section", "section.late", "section.level", "section.n",
		"size", "for_ever", "", "each", "each.*", "each.*.level", "each.*.n",
	}, paths)
	require.Contains(t, variables, "X_SECTION_LATE")
	require.Len(t, variables, 8)
}

func TestDefaults(t *testing.T) {
	c := config{Pauses: pauses{Min: time.Minute}, Size: -1}
	field.SetDefaults(&c)
	require.Equal(t, config{Pauses: pauses{Min: time.Minute, Max: time.Minute}, Part: one{Level: "info"}, Size: -1, Ever: time.Hour, Only: 3 * time.Second}, c,
		"a largest value is never below the least one that is set")
}

func TestCheck(t *testing.T) {
	c := config{Pauses: pauses{Max: time.Millisecond}, Part: one{Level: "wran", N: 10}, Size: -2, Ever: -2, Only: -1, Each: map[string]one{"b": {N: -1}, "a": {}}}
	written := func(path string) bool { return path == "each.a.n" }
	require.EqualError(t, field.Check(&c, field.Names{Written: written}), `name is missing: name it
pause_max is 1ms, less than the 1s of pause_min: raise it
section.level is wran: did you mean warn?
section.n is 10: use a number from 1 to 9
size is -2: use a positive number, or -1 for none
for_ever is -2ns: use a positive duration such as 500ms, 30s or 24h, or -1 for none
 is -1: use a positive duration such as 500ms, 30s or 24h
each.a.n is 0: use a number from 1 to 9
each.b.n is -1: use a number from 1 to 9`)
	require.ErrorContains(t, field.Check(&c, field.Names{Go: true, Prefix: "In."}), "In.Pauses.Max is 1ms, less than the 1s of In.Pauses.Min")
	require.Empty(t, field.Check(&config{Name: "x"}, field.Names{}), "zeros are defaults")
}

func TestSetAndText(t *testing.T) {
	var c config
	for _, f := range field.Of(reflect.TypeFor[config]()) {
		set := func(text string) (fix string) {
			f.Edit(&c, "k", func(v reflect.Value) { fix = f.Set(v, text) })
			return fix
		}
		switch f.Path {
		case "section.late":
			require.Empty(t, set("[x, y]"))
		case "each.*.n":
			require.Equal(t, "use a whole number such as 10", set("many"))
			require.Empty(t, set("4"))
		case "for_ever":
			require.Equal(t, "use a duration such as 500ms, 30s or 24h", set("-2"))
			require.Empty(t, set("-1"))
		case "pause_min":
			require.Equal(t, "use a duration such as 500ms, 30s or 24h", set("1 day"))
			require.Empty(t, set("90m"))
		}
		for path, v := range f.Values(&c) {
			switch path {
			case "section.late":
				require.Equal(t, "[x, y]", f.Text(v))
			case "for_ever":
				require.Equal(t, "-1", f.Text(v))
			case "pause_min":
				require.Equal(t, "1h30m", f.Text(v))
			}
		}
	}
	require.Equal(t, 4, c.Each["k"].N)
}
