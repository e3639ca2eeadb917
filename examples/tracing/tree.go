package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// node is a span and what happened beneath.
type node struct {
	tracetest.SpanStub

	children []*node
	notes    string // what the attributes and links say
}

// grow makes trees of spans, one for each request, in order of their beginning. Traces
// that no request has begun are left out.
func grow(spans tracetest.SpanStubs) []*node {
	nodes := make(map[trace.SpanID]*node, len(spans))
	var all, roots []*node
	for _, span := range spans {
		n := &node{SpanStub: span}
		nodes[span.SpanContext.SpanID()] = n
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b *node) int { return a.StartTime.Compare(b.StartTime) })
	for _, n := range all {
		if parent := nodes[n.Parent.SpanID()]; parent != nil {
			parent.children = append(parent.children, n)
		} else if n.SpanKind == trace.SpanKindServer {
			roots = append(roots, n)
		}
	}
	for _, n := range all {
		n.notes = n.tell(roots)
	}
	return roots
}

// tell writes what is worth knowing of a span.
func (n *node) tell(traces []*node) string {
	var notes []string
	for _, name := range []attribute.Key{"millpond.result", "millpond.outcome"} {
		if value := attributeOf(n.Attributes, name); value != "" {
			notes = append(notes, value)
		}
	}
	for _, flag := range []attribute.Key{"millpond.cached", "millpond.retry"} {
		if attributeOf(n.Attributes, flag) == "true" {
			notes = append(notes, strings.TrimPrefix(string(flag), "millpond."))
		}
	}
	if n.Status.Code == codes.Error {
		notes = append(notes, "error: "+cmp.Or(n.exception(), n.Status.Description))
	}
	for _, link := range n.Links {
		for i, root := range traces {
			if root.SpanContext.TraceID() == link.SpanContext.TraceID() {
				notes = append(notes, fmt.Sprintf("%s → trace %d", attributeOf(link.Attributes, "millpond.link"), i+1))
			}
		}
	}
	return strings.Join(notes, ", ")
}

// exception is the text of the error that was recorded.
func (n *node) exception() string {
	for _, event := range n.Events {
		if text := attributeOf(event.Attributes, semconv.ExceptionMessageKey); text != "" {
			return text
		}
	}
	return ""
}

func (n *node) service() string {
	value, _ := n.Resource.Set().Value(semconv.ServiceNameKey)
	return value.AsString()
}

func attributeOf(attributes []attribute.KeyValue, key attribute.Key) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// line is a span in a tree that is drawn with characters.
type line struct {
	*node

	text string
}

// lines walks through a trace.
func (n *node) lines() []line {
	lines := []line{{n, n.Name}}
	for i, child := range n.children {
		first, others := "├─ ", "│  "
		if i == len(n.children)-1 {
			first, others = "└─ ", "   "
		}
		for j, l := range child.lines() {
			if j == 0 {
				l.text = first + l.text
			} else {
				l.text = others + l.text
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// show prints trees.
func show(out io.Writer, traces []*node) error {
	width := 0
	for _, root := range traces {
		for _, l := range root.lines() {
			width = max(width, utf8.RuneCountInString(l.text))
		}
	}
	for i, root := range traces {
		var b strings.Builder
		fmt.Fprintf(&b, "trace %d: %s\n", i+1, posts[i%len(posts)].what)
		for _, l := range root.lines() {
			pad := strings.Repeat(" ", width-utf8.RuneCountInString(l.text))
			text := fmt.Sprintf("  %s%s  %-9s  %-8s  %s", l.text, pad, l.service(), l.SpanKind, l.notes)
			b.WriteString(strings.TrimRight(text, " ") + "\n")
		}
		if _, err := io.WriteString(out, b.String()+"\n"); err != nil {
			return err
		}
	}
	return nil
}
