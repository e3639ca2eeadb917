package router

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// file reads a YAML document. The walk over its nodes is our own, because a decoder stops
// at the first mistake, and quotes the lines around it, secrets included.
func (r *reading) file(name string, text []byte) {
	d := &document{reading: r, name: name, anchors: make(map[string]ast.Node)}
	tree, err := parse(text)
	if err != nil {
		at := d.at(0)
		message := "it is not YAML"
		if e, ok := errors.AsType[syntaxError](err); ok {
			if token := e.GetToken(); token != nil && token.Position != nil {
				at = d.at(token.Position.Line)
			}
			// What is quoted in a message is part of the file.
			message, _, _ = strings.Cut(e.GetMessage(), `"`)
			message = "it is not YAML: " + strings.TrimRight(message, " :")
		}
		r.bad(at, "", "%s", message)
		return
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			r.bad(d.at(line(doc.Body)), "", "a second document begins here: write one, without ---")
			break
		}
		body = doc.Body
	}
	if body == nil {
		return
	}
	ast.Walk(d, body)
	d.section(body, reflect.ValueOf(&r.config).Elem(), "")
}

type syntaxError interface {
	error
	messenger
}

func parse(text []byte) (tree *ast.File, err error) {
	defer func() {
		if recover() != nil { // what it panics with may quote the text
			err = errors.New("the parser gave up")
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// document is a file that is being read.
type document struct {
	*reading

	name    string
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
func (d *document) section(n ast.Node, into reflect.Value, path string) {
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
		d.bad(d.at(line(n)), path, "is %s: write fields below it, such as %s", kind(n), strings.Join(below(path)[:1], ""))
		return
	}
	seen := make(map[string]int)
	for _, pair := range pairs {
		d.pair(pair, into, path, seen)
	}
}

func (d *document) pair(pair *ast.MappingValueNode, into reflect.Value, path string, seen map[string]int) {
	at := d.at(line(pair.Key))
	name := pair.Key.GetToken().Value
	if pair.Key.IsMergeKey() {
		d.bad(at, path, "merges another mapping: write its fields here")
		return
	}
	child := join(path, name)
	if before, twice := seen[name]; twice {
		d.bad(at, child, "is set in line %d already: remove one", before)
		return
	}
	seen[name] = at.line
	if into.Kind() == reflect.Map {
		one := reflect.New(into.Type().Elem()).Elem()
		d.section(pair.Value, one, child)
		if into.IsNil() {
			into.Set(reflect.MakeMap(into.Type()))
		}
		into.SetMapIndex(reflect.ValueOf(name), one)
		d.origins[child] = at
		return
	}
	field := fieldNamed(into, name)
	if !field.IsValid() {
		d.unknown(at, path, name)
		return
	}
	switch field.Kind() {
	case reflect.Struct, reflect.Map:
		d.section(pair.Value, field, child)
	default:
		d.value(at, pair.Value, field, child)
	}
}

var fieldName = regexp.MustCompile(`^\w[\w.-]{0,40}$`)

// unknown complains about a field without repeating its value, which may be a secret.
func (d *document) unknown(at origin, path, name string) {
	if !fieldName.MatchString(name) {
		d.bad(at, "", "a name here is none of a field: %s", choices(path))
		return
	}
	child := join(path, name)
	known := below(path)
	if best, ok := nearest(name, known); ok {
		d.bad(at, child, "is not a field: did you mean %s?", join(path, best))
		return
	}
	for _, f := range fields {
		if strings.HasSuffix(f.path, "."+name) && !strings.Contains(f.path, "*") {
			d.bad(at, child, "is not a field: did you mean %s?", f.path)
			return
		}
	}
	d.bad(at, child, "is not a field: %s", choices(path))
}

func choices(path string) string {
	if path == "" {
		return "there are " + strings.Join(below(path), ", ")
	}
	return "below " + path + " there are " + strings.Join(below(path), ", ")
}

// value reads a scalar, or a list of them.
func (d *document) value(at origin, n ast.Node, into reflect.Value, path string) {
	bare := d.bare(n)
	if bare == nil {
		d.bad(at, path, "refers to an anchor that is nowhere: write the value")
		return
	}
	if bare.Type() == ast.NullType {
		return
	}
	d.origins[path] = at
	if into.Kind() == reflect.Slice {
		items := []ast.Node{bare}
		if list, ok := bare.(*ast.SequenceNode); ok {
			items = list.Values
		}
		texts := make([]string, 0, len(items))
		for _, item := range items {
			text, ok := scalar(d.bare(item))
			if !ok {
				d.bad(at, path, "is %s: write a list such as %s", kind(bare), cmpOr(known(path).initial, "[a, b]"))
				return
			}
			texts = append(texts, text)
		}
		into.Set(reflect.ValueOf(texts))
		return
	}
	text, ok := scalar(bare)
	if !ok {
		d.bad(at, path, "is %s: write one value", kind(bare))
		return
	}
	if fix := setText(into, text); fix != "" {
		d.bad(at, path, "is %s: %s", shown(into, text), fix)
	}
}

// scalar returns the text of a node that is one value.
func scalar(n ast.Node) (string, bool) {
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

// kind says what a node is that should be something else.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
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
	default:
		into.SetString(text)
	}
	return ""
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
		if tag := in.Type().Field(i).Tag.Get("yaml"); tag == name && tag != "-" {
			return in.Field(i)
		}
	}
	return reflect.Value{}
}

var _ = fmt.Sprint
