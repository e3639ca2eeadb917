package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// Values of --payload.
const (
	payloadText = "text"
	payloadHex  = "hex"
	payloadRaw  = "raw"
	payloadNone = "none"
)

// shownPayload is how many bytes of a payload people see by default.
const shownPayload = 4 << 10

// payloadView is how a payload is shown.
type payloadView struct {
	form  string
	max   int // bytes; 0: all; -1: not given
	force bool
}

func (v *payloadView) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.form, "payload", payloadText, "show the payload in this `form`: text, hex, raw (only its bytes), none")
	f.IntVar(&v.max, "max-payload-bytes", -1, fmt.Sprintf("show at most this `number` of its bytes; 0: all; default: %d in a table, else all", shownPayload))
	f.Lookup("max-payload-bytes").DefValue = "" // the usage says it
	f.BoolVar(&v.force, "force", false, "write a raw payload even to a terminal, which may run control codes in it")
	complete(cmd, "payload", payloadText, payloadHex, payloadRaw, payloadNone)
}

func (v *payloadView) check(p *program) error {
	if v.max < -1 {
		return usagef("--max-payload-bytes is %d: use 0 or a positive number", v.max)
	}
	if v.max == -1 {
		v.max = 0
		if p.output == outputTable && (v.form == payloadText || v.form == payloadHex) {
			v.max = shownPayload
		}
	}
	switch v.form {
	case payloadText, payloadNone:
	case payloadHex, payloadRaw:
		if p.output != outputTable {
			return usagef("--payload %s and --output %s exclude each other: JSON has the payload as it is", v.form, p.output)
		}
	default:
		return usagef("--payload is %q: use text, hex, raw or none", v.form)
	}
	if v.form == payloadRaw && p.outTTY && !v.force {
		return usagef("a raw payload may contain what the terminal acts on: send it to a file or a pipe, or add --force")
	}
	return nil
}

// cut returns the part of a payload that is shown, and whether it was cut.
func (v *payloadView) cut(b []byte) (shown []byte, truncated bool) {
	if v.form == payloadNone {
		return nil, false
	}
	if v.max > 0 && len(b) > v.max {
		return b[:v.max], true
	}
	return b, false
}

// showKept writes a message with a kept payload: only the payload with --payload raw, and otherwise
// the record, as show does.
func (p *program) showKept(record any, v payloadView, payload []byte, text func(io.Writer)) error {
	if v.form != payloadRaw {
		return p.show(record, text)
	}
	shown, _ := v.cut(payload)
	_, err := p.out.Write(shown)
	return err
}

// tombstone reports whether a kept message has a nil payload, which is not an empty one.
func tombstone(payload []byte, codec string, f stores.Facts) bool {
	return f.PayloadWasNil || codec == "" && payload == nil
}

// text writes the payload for people; size is the size of the kept payload.
func (v *payloadView) text(w io.Writer, b []byte, size int) {
	if v.form == payloadNone || len(b) == 0 {
		return
	}
	shown, truncated := v.cut(b)
	title := "payload, " + bytesOf(size)
	if truncated {
		title += fmt.Sprintf(", of which the first %s (--max-payload-bytes 0 shows all)", count(len(shown)))
	}
	if v.form == payloadHex {
		section(w, title, hex.Dump(shown))
		return
	}
	var indented bytes.Buffer
	if !truncated && json.Indent(&indented, shown, "", "  ") == nil {
		shown = indented.Bytes()
	}
	section(w, title, printableLines(string(shown)))
}

// metadataText writes the metadata for people.
func metadataText(w io.Writer, metadata map[string]string) {
	if len(metadata) == 0 {
		return
	}
	var b strings.Builder
	f := newFields(&b)
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		f.add(printable(name), strconv.Quote(metadata[name]))
	}
	f.close()
	section(w, "metadata", b.String())
}
