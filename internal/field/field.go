// Package field describes the fields of configuration structs by their tags, so that
// everything about a field is in one place:
//
//	Limit time.Duration `config:"limit" default:"5m" check:"positive" about:"How long …"`
//
// The tags are:
//
//   - config: the name in a file, below that of the struct. With a slash before it the name
//     begins at the top of the file; "" puts the fields of a struct beside their neighbors;
//     "-" keeps the field out of files. A field without this tag is none.
//   - default: the value of a field that is zero.
//   - check: positive; off (positive, or -1 for none); the least and the most, such as
//     1..255; or the words that are allowed, such as text|json. Of a bool these are two, the
//     first for false.
//   - least: the name of a sibling that must not be larger.
//   - about: the explanation. example: an example value, for a field without a default.
//   - missing: the field is required; the fix if it has no value.
package field

import (
	"cmp"
	"encoding"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// Field is a field of a configuration.
type Field struct {
	Path    string // in a file, "" if it is only in the struct; * stands for the key of a map
	Name    string // in Go, below the struct: "Hold.Limit"
	Section bool   // other fields stand below it
	List    bool   // it has many values

	Default, About, Example, Missing string

	check, least string
	steps        []int // to the value; key is into a map
}

const key = -1

// Of returns the fields of a struct, in the order of a file: a section before its fields.
func Of(t reflect.Type) []Field {
	fields := collect(nil, t, Field{})
	first := make(map[string]int) // where a section begins
	for i, f := range fields {
		for _, section := range sections(f.Path) {
			if _, there := first[section]; !there {
				first[section] = i
			}
		}
	}
	slices.SortStableFunc(fields, func(a, b Field) int {
		return slices.CompareFunc(sections(a.Path), sections(b.Path), func(a, b string) int { return cmp.Compare(first[a], first[b]) })
	})
	return fields
}

// sections are the paths on the way to a path, the last one being itself.
func sections(path string) []string {
	var all []string
	for i := range len(path) {
		if path[i] == '.' {
			all = append(all, path[:i])
		}
	}
	return append(all, path)
}

func collect(all []Field, t reflect.Type, in Field) []Field {
	for i := range t.NumField() {
		goField := t.Field(i)
		tag := goField.Tag
		name, ok := tag.Lookup("config")
		if !ok {
			continue
		}
		f := Field{
			Path: join(in.Path, name), Name: join(in.Name, goField.Name),
			Default: tag.Get("default"), About: tag.Get("about"), Example: tag.Get("example"), Missing: tag.Get("missing"),
			check: tag.Get("check"), least: tag.Get("least"), steps: append(slices.Clip(in.steps), i),
		}
		if top, ok := strings.CutPrefix(name, "/"); ok {
			f.Path = top
		}
		if name == "-" {
			f.Path = ""
		}
		f.List = strings.HasPrefix(f.Default+f.Example, "[")
		switch kind := goField.Type.Kind(); {
		case kind == reflect.Struct && !isText(goField.Type):
			f.Section = true
			if name != "" {
				all = append(all, f)
			}
			all = collect(all, goField.Type, f)
		case kind == reflect.Map:
			f.Section = true
			all = append(all, f)
			f.Path, f.Name, f.About, f.steps = join(f.Path, "*"), join(f.Name, "*"), "", append(f.steps, key)
			all = append(all, f)
			all = collect(all, goField.Type.Elem(), f)
		default:
			all = append(all, f)
		}
	}
	return all
}

// isText reports whether a struct is written as a single value.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// Variable is the name of the environment variable of a field, "" if it has none.
func (f Field) Variable(prefix string) string {
	if f.Section || f.Path == "" || strings.Contains(f.Path, "*") {
		return ""
	}
	return prefix + strings.ToUpper(strings.ReplaceAll(f.Path, ".", "_"))
}

// Edit calls do with the field in the struct that config points to; do may set it. key
// selects the entry of a map on the path, if there is one.
func (f Field) Edit(config any, key string, do func(reflect.Value)) {
	edit(reflect.ValueOf(config).Elem(), f.steps, key, do)
}

func edit(v reflect.Value, steps []int, name string, do func(reflect.Value)) {
	for i, step := range steps {
		if step != key {
			v = v.Field(step)
			continue
		}
		one, at := reflect.New(v.Type().Elem()).Elem(), reflect.ValueOf(name)
		if there := v.MapIndex(at); there.IsValid() {
			one.Set(there)
		}
		edit(one, steps[i+1:], name, do)
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(at, one)
		return
	}
	do(v)
}

// Values yields the field in the struct that config points to, with its path in a file; one
// for each key of a map on the path.
func (f Field) Values(config any) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		v := reflect.ValueOf(config).Elem()
		at := slices.Index(f.steps, key)
		if at < 0 {
			yield(f.Path, v.FieldByIndex(f.steps))
			return
		}
		v = v.FieldByIndex(f.steps[:at])
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, name := range names {
			one := v.MapIndex(name)
			if rest := f.steps[at+1:]; len(rest) > 0 {
				one = one.FieldByIndex(rest)
			}
			if !yield(strings.Replace(f.Path, "*", name.String(), 1), one) {
				return
			}
		}
	}
}

// SetDefaults sets the zero fields of the struct that config points to.
func SetDefaults(config any) {
	fields := Of(reflect.TypeOf(config).Elem())
	for _, f := range fields {
		if f.Default == "" || slices.Contains(f.steps, key) {
			continue
		}
		v := reflect.ValueOf(config).Elem().FieldByIndex(f.steps)
		if !v.IsZero() {
			continue
		}
		if fix := f.Set(v, f.Default); fix != "" {
			panic("field: the default of " + f.Name + ": " + fix)
		}
		if least, ok := f.sibling(fields); ok { // never below what is set
			v.SetInt(max(v.Int(), reflect.ValueOf(config).Elem().FieldByIndex(least.steps).Int()))
		}
	}
}

// sibling returns the field that must not be larger.
func (f Field) sibling(fields []Field) (Field, bool) {
	if f.least == "" {
		return Field{}, false
	}
	beside := append(slices.Clone(f.steps[:len(f.steps)-1]), 0)
	i := slices.IndexFunc(fields, func(other Field) bool {
		return len(other.steps) == len(beside) && slices.Equal(other.steps[:len(beside)-1], beside[:len(beside)-1]) &&
			other.Name[strings.LastIndex(other.Name, ".")+1:] == f.least
	})
	return fields[i], true
}
