package router

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/millpond-go/millpond/internal/field"
)

// file reads a YAML document. It walks over the nodes itself, because a decoder stops at the
// first error and quotes the lines around it, including secrets.
func (r *reading) file(text []byte) {
	d := &document{reading: r}
	tree, err := parse(text)
	if err != nil {
		d.noYAML(err)
		r.unreadable = true
		return
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.DirectiveType {
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
	d.section(body, place{})
}

// place is a place in a configuration: its path, the path of its field, which has * for the
// name of a handler or a destination, and that name.
type place struct{ path, entry, key string }

func (p place) below(name string) place {
	if slices.Contains(entries, p.entry) {
		return place{join(p.path, name), join(p.entry, "*"), name}
	}
	return place{join(p.path, name), join(p.entry, name), p.key}
}

// document is a file that is being read.
type document struct {
	*reading

	anchors []*ast.AnchorNode // in the order of the file
}

// Visit implements ast.Visitor. It collects the anchors.
func (d *document) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		d.anchors = append(d.anchors, anchor)
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
			n = d.anchor(node)
		default:
			return n
		}
	}
	return nil
}

// anchor returns what an alias refers to: the last anchor of its name before it.
func (d *document) anchor(alias *ast.AliasNode) (last ast.Node) {
	name := alias.Value.GetToken()
	for _, anchor := range d.anchors {
		if token := anchor.Name.GetToken(); token.Value == name.Value && token.Position.Offset < name.Position.Offset {
			last = anchor.Value
		}
	}
	return last
}

// section reads a mapping.
func (d *document) section(n ast.Node, at place) {
	here := d.at(line(n))
	n = d.bare(n)
	if n == nil {
		d.badf(here, at.path, "refers to an anchor that is not before it: write the fields")
		return
	}
	if n.Type() == ast.NullType {
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
		d.pair(pair, at, seen)
	}
}

func (d *document) pair(pair *ast.MappingValueNode, section place, seen map[string]int) {
	here := d.at(line(pair.Key))
	name := pair.Key.GetToken().Value
	if pair.Key.IsMergeKey() {
		d.badf(here, section.path, "merges another mapping: write its fields here")
		return
	}
	at, isEntry := section.below(name), slices.Contains(entries, section.entry)
	if before, twice := seen[name]; twice && (isEntry || fieldName.MatchString(name)) {
		d.badf(here, at.path, "is set in line %d already: remove one", before)
		return
	}
	seen[name] = here.line
	f, ok := known(at.entry)
	switch {
	case !ok || strings.Contains(name, ".") && !isEntry:
		d.unknown(here, section, name)
	case isEntry:
		f.Edit(&d.config, name, func(reflect.Value) {}) // it is there, even without fields
		d.origins[at.path] = here
		d.section(pair.Value, at)
	case f.Section:
		d.section(pair.Value, at)
	default:
		d.value(here, pair.Value, f, at)
	}
}

// fieldName matches unknown names that a message may repeat. The rest of a misplaced secret
// rarely matches.
var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]{0,30}$`)

// unknown reports an unknown field without its value, which may be a secret.
func (d *document) unknown(here origin, section place, name string) {
	if _, ok := known(join(section.entry, name)); ok {
		d.badf(here, join(section.path, name), "is written with dots: write %s", strings.ReplaceAll(name, ".", ": {")+": …"+strings.Repeat("}", strings.Count(name, ".")))
		return
	}
	if !fieldName.MatchString(name) {
		d.badf(here, section.path, "has a name that is not one of a field: %s", choices(section))
		return
	}
	at := section.below(name)
	if best, ok := field.Nearest(name, below(section.entry)); ok {
		d.badf(here, at.path, "is not a field: did you mean %s?", section.below(best).path)
		return
	}
	for _, f := range fields {
		if strings.HasSuffix(f.Path, "."+name) && !strings.Contains(f.Path, "*") {
			d.badf(here, at.path, "is not a field: did you mean %s?", f.Path)
			return
		}
	}
	d.badf(here, at.path, "is not a field: %s", choices(section))
}

func choices(section place) string {
	names := strings.Join(below(section.entry), ", ")
	if slices.Contains(entries, section.entry) {
		return "below " + section.path + " there are names of " + section.path
	}
	if section.path == "" {
		return "there are " + names
	}
	return "below " + section.path + " there are " + names
}

// value reads a scalar, or a list of them.
func (d *document) value(here origin, n ast.Node, f field.Field, at place) {
	bare := d.bare(n)
	if bare == nil {
		d.badf(here, at.path, "refers to an anchor that is nowhere: write the value")
		return
	}
	if bare.Type() == ast.NullType {
		return
	}
	text, ok := d.scalar(bare)
	if list, isList := bare.(*ast.SequenceNode); isList && f.List {
		text, ok = d.list(here, list, at)
		if !ok {
			return
		}
	}
	if !ok {
		fix := "write one value"
		if kind(bare) == mapping {
			fix += ", in quotes if it has a colon"
		}
		d.badf(here, at.path, "is %s: %s", kind(bare), fix)
		return
	}
	d.take(here, f, at, text)
}

// list returns the items of a list as one text.
func (d *document) list(here origin, list *ast.SequenceNode, at place) (string, bool) {
	texts := make([]string, 0, len(list.Values))
	for _, item := range list.Values {
		text, ok := d.scalar(item)
		switch {
		case ok:
		case kind(d.bare(item)) == mapping:
			d.badf(here, at.path, `has an item that is a mapping: put one with a colon into quotes, without a space, as in ["payload:id"]`)
			return "", false
		default:
			d.badf(here, at.path, "is no list of values: write one such as [a, b]")
			return "", false
		}
		if strings.Contains(text, ",") {
			d.badf(here, at.path, "has the item %s with a comma, which stands between items: write one without", quoted(text))
			return "", false
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", "), true
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

// kind names the kind of a node that is not of the expected one.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return mapping
	case *ast.SequenceNode:
		return "a list"
	}
	return "one value"
}
