package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millpond-go/millpond/stores"
)

// Values of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputJSONL = "jsonl"
)

var outputs = []string{outputTable, outputJSON, outputJSONL}

// list writes records as rows of a table, as one JSON array, or as one JSON object per line.
type list struct {
	output string
	to     io.Writer
	table  *tabwriter.Writer
	rows   int
	err    error // the first error; nothing is written after it
}

func (p *program) newList(header columns) *list {
	l := &list{output: p.output, to: p.out}
	if l.output == outputTable {
		l.table = tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
		l.line(header.titles())
	}
	return l
}

// add writes one record; cells are its columns in the table.
func (l *list) add(record any, cells ...string) {
	l.rows++
	switch l.output {
	case outputTable:
		l.line(cells)
	case outputJSON:
		before := ",\n  "
		if l.rows == 1 {
			before = "[\n  "
		}
		l.write(append([]byte(before), bytes.TrimSuffix(l.encode(record, "  "), []byte("\n"))...))
	default:
		l.write(l.encode(record, ""))
	}
}

// close writes the rest and returns the first error.
func (l *list) close() error {
	switch {
	case l.err != nil:
	case l.output == outputTable && l.rows > 0: // without rows there is no header
		l.err = l.table.Flush()
	case l.output == outputJSON && l.rows == 0:
		l.write([]byte("[]\n"))
	case l.output == outputJSON:
		l.write([]byte("\n]\n"))
	}
	return l.err
}

func (l *list) line(cells []string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	// tabwriter returns errors of its writer in Flush.
	fmt.Fprintln(l.table, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func (l *list) encode(record any, prefix string) []byte {
	b, err := encodeJSON(record, prefix, l.output == outputJSON)
	if l.err == nil {
		l.err = err
	}
	return b
}

func (l *list) write(b []byte) {
	if l.err == nil {
		_, l.err = l.to.Write(b)
	}
}

// show writes one record: as JSON, or by text.
func (p *program) show(record any, text func(w io.Writer)) error {
	var b bytes.Buffer
	if p.output == outputTable {
		text(&b)
	} else {
		encoded, err := encodeJSON(record, "", p.output == outputJSON)
		if err != nil {
			return err
		}
		b.Write(encoded)
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

// encodeJSON returns record as JSON that is safe on a terminal, ended by a newline.
func encodeJSON(record any, prefix string, indent bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent(prefix, "  ")
	}
	if err := e.Encode(record); err != nil {
		return nil, err
	}
	return escapeJSON(b.Bytes()), nil
}

// escapeJSON writes as \u… what JSON allows in strings and a terminal may interpret. Such
// characters occur only in strings.
func escapeJSON(b []byte) []byte {
	safe := func(r rune) bool { return r == '\n' || strconv.IsPrint(r) }
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case safe(r):
			out = append(out, b[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[size:]
	}
	return out
}

// fields writes names and values, one pair per line; it leaves out empty values.
type fields struct{ table *tabwriter.Writer }

func newFields(w io.Writer) fields { return fields{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

func (f fields) add(name, value string) {
	if value != "" {
		fmt.Fprintf(f.table, "%s\t%s\n", name, printable(value))
	}
}

// addFacts adds the broker's facts about a message.
func (p *program) addFacts(to fields, f stores.Facts) {
	const shown = 200 // characters: a key may be as large as a payload
	key := cut(printable(string(f.Key)), shown)
	if f.Key != nil && key == "" {
		key = "(empty)"
	}
	to.add("key", key)
	to.add("native id", cut(printable(f.NativeID), shown))
	to.add("broker's time", p.exactly(f.Time))
}

// addNil tells a message without a payload from one with an empty payload.
func (f fields) addNil(tombstone bool) {
	if tombstone {
		f.add("payload", "nil, as of a tombstone")
	}
}

func (f fields) close() { _ = f.table.Flush() } // to a buffer

// section writes lines under a title, indented, so that none looks like another section.
func section(w io.Writer, title, body string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		fmt.Fprintf(w, "  %s\n", line)
	}
}
