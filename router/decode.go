package router

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// file reads a YAML document. The walk over its nodes is our own, because a decoder stops
// at the first mistake, and quotes the lines around it, secrets included.
func (r *reading) file(text []byte) {
	d := &document{reading: r, anchors: make(map[string]ast.Node)}
	tree, err := parse(text)
	if err != nil {
		d.noYAML(err)
		r.unreadable = true
		return
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			r.badf(d.at(line(doc.Body)), "", "a second document begins here: write one, without ---")
			break
		}
		body = doc.Body
	}
	if body == nil {
		return
	}
	ast.Walk(d, body)
	d.section(body, reflect.ValueOf(&r.config).Elem(), place{})
}

// place is where something stands in a configuration: its path, and the path of the table
// of fields, which has * for the name of a handler.
type place struct{ path, entry string }

func (p place) below(name string) place { return place{join(p.path, name), join(p.entry, name)} }

// document is a file that is being read.
type document struct {
	*reading

	anchors map[string]ast.Node
}

// Visit implements ast.Visitor: it remembers what aliases may refer to.
func (d *document) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		d.anchors[anchor.Name.GetToken().Value] = anchor.Value
	}
	return d
}

func (d *document) at(line int) origin {
	if line == 0 {
		return origin{where: d.name}
	}
	return origin{where: d.name + ":" + strconv.Itoa(line), line: line}
}

func line(n ast.Node) int {
	if token := n.GetToken(); token != nil && token.Position != nil {
		return token.Position.Line
	}
	return 0
}

// bare returns the node without anchors, aliases and tags; nil for an alias of nothing.
func (d *document) bare(n ast.Node) ast.Node {
	for range 100 { // an alias may refer to itself
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.TagNode:
			n = node.Value
		case *ast.AliasNode:
			n = d.anchors[node.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// section reads a mapping into a struct, or a map of them.
func (d *document) section(n ast.Node, into reflect.Value, at place) {
	n = d.bare(n)
	if n == nil || n.Type() == ast.NullType {
		return
	}
	var pairs []*ast.MappingValueNode
	switch node := n.(type) {
	case *ast.MappingNode:
		pairs = node.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{node}
	default:
		d.badf(d.at(line(n)), at.path, "is %s: write fields there: %s", kind(n), choices(at))
		return
	}
	seen := make(map[string]int)
	for _, pair := range pairs {
		d.pair(pair, into, at, seen)
	}
}

func (d *document) pair(pair *ast.MappingValueNode, into reflect.Value, section place, seen map[string]int) {
	here := d.at(line(pair.Key))
	name := pair.Key.GetToken().Value
	if pair.Key.IsMergeKey() {
		d.badf(here, section.path, "merges another mapping: write its fields here")
		return
	}
	at := section.below(name)
	if into.Kind() == reflect.Map {
		at = place{at.path, join(section.entry, "*")}
	}
	if before, twice := seen[name]; twice && (into.Kind() == reflect.Map || fieldName.MatchString(name)) {
		d.badf(here, at.path, "is set in line %d already: remove one", before)
		return
	}
	seen[name] = here.line
	if into.Kind() == reflect.Map {
		one := reflect.New(into.Type().Elem()).Elem()
		d.section(pair.Value, one, at)
		if into.IsNil() {
			into.Set(reflect.MakeMap(into.Type()))
		}
		into.SetMapIndex(reflect.ValueOf(name), one)
		d.origins[at.path] = here
		return
	}
	field := fieldNamed(into, name)
	if !field.IsValid() {
		d.unknown(here, section, name)
		return
	}
	if kind := field.Kind(); (kind == reflect.Struct || kind == reflect.Map) && !isText(field) {
		d.section(pair.Value, field, at)
		return
	}
	d.value(here, pair.Value, field, at)
}

// What a field that is not known may look like to be repeated in a message: the rest of
// a secret in a wrong place rather does not.
var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]{0,30}$`)

// unknown complains about a field without repeating its value, which may be a secret.
func (d *document) unknown(here origin, section place, name string) {
	if slices.ContainsFunc(fields, func(f field) bool { return strings.Contains(name, ".") && f.path == join(section.entry, name) }) {
		d.badf(here, join(section.path, name), "is written with dots: write %s", strings.ReplaceAll(name, ".", ": {")+": …"+strings.Repeat("}", strings.Count(name, ".")))
		return
	}
	if !fieldName.MatchString(name) {
		d.badf(here, section.path, "has a name that is not one of a field: %s", choices(section))
		return
	}
	at := section.below(name)
	if best, ok := nearest(name, below(section.entry)); ok {
		d.badf(here, at.path, "is not a field: did you mean %s?", section.below(best).path)
		return
	}
	for _, f := range fields {
		if strings.HasSuffix(f.path, "."+name) && !strings.Contains(f.path, "*") {
			d.badf(here, at.path, "is not a field: did you mean %s?", f.path)
			return
		}
	}
	d.badf(here, at.path, "is not a field: %s", choices(section))
}

func choices(section place) string {
	names := strings.Join(below(section.entry), ", ")
	if section.entry == "handlers" {
		return "below handlers there are names of handlers"
	}
	if section.path == "" {
		return "there are " + names
	}
	return "below " + section.path + " there are " + names
}

// value reads a scalar, or a list of them.
func (d *document) value(here origin, n ast.Node, into reflect.Value, at place) {
	bare := d.bare(n)
	if bare == nil {
		d.badf(here, at.path, "refers to an anchor that is nowhere: write the value")
		return
	}
	if bare.Type() == ast.NullType {
		return
	}
	if into.Kind() == reflect.Slice {
		items := []ast.Node{bare}
		if list, ok := bare.(*ast.SequenceNode); ok {
			items = list.Values
		}
		texts := make([]string, 0, len(items))
		for _, item := range items {
			text, ok := d.scalar(item)
			switch {
			case ok:
			case kind(d.bare(item)) == mapping:
				d.badf(here, at.path, `has an item that is a mapping: put one with a colon into quotes, without a space, as in ["payload:id"]`)
				return
			default:
				d.badf(here, at.path, "is no list of values: write one such as [a, b]")
				return
			}
			texts = append(texts, text)
		}
		into.Set(reflect.ValueOf(texts))
		d.origins[at.path] = here
		return
	}
	text, ok := d.scalar(bare)
	if !ok {
		fix := "write one value"
		if kind(bare) == mapping {
			fix += ", in quotes if it has a colon"
		}
		d.badf(here, at.path, "is %s: %s", kind(bare), fix)
		return
	}
	if fix := setText(into, text); fix != "" {
		d.badf(here, at.path, "is %s: %s", shown(into, text), fix)
		return
	}
	d.origins[at.path] = here
}

// scalar returns the text of a node that is one value.
func (d *document) scalar(n ast.Node) (string, bool) {
	n = d.bare(n)
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

const mapping = "a mapping"

// kind says what a node is that should be something else.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return mapping
	case *ast.SequenceNode:
		return "a list"
	}
	return "one value"
}

// setText sets a field from text. It returns what to write instead.
func setText(into reflect.Value, text string) (fix string) {
	switch into.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return "use a duration such as 500ms, 30s or 24h"
		}
		into.SetInt(int64(d))
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return "use a whole number such as 10"
		}
		into.SetInt(int64(n))
	case bool:
		if text != "true" && text != "false" {
			return "use true or false"
		}
		into.SetBool(text == "true")
	case []string:
		var items []string
		for item := range strings.SplitSeq(strings.Trim(text, "[]"), ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		into.Set(reflect.ValueOf(items))
	case URL:
		into.Set(reflect.ValueOf(NewURL(text)))
	case Secret:
		into.Set(reflect.ValueOf(NewSecret(text)))
	default:
		into.SetString(text)
	}
	return ""
}

// isText reports whether a field that is a struct is written as one value.
func isText(field reflect.Value) bool {
	switch field.Interface().(type) {
	case URL, Secret:
		return true
	}
	return false
}

// shown is a value as messages repeat it: not at all if it is a secret.
func shown(field reflect.Value, text string) string {
	switch field.Interface().(type) {
	case URL:
		return quoted(redactURL(text))
	case Secret:
		return hidden
	}
	return quoted(text)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fieldNamed returns the field of a struct that a file calls so; the zero Value if there
// is none.
func fieldNamed(in reflect.Value, name string) reflect.Value {
	for i := range in.NumField() {
		if tag := in.Type().Field(i).Tag.Get("yaml"); tag == name && tag != "-" && tag != "" {
			return in.Field(i)
		}
	}
	return reflect.Value{}
}
