package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// order is an event: one JSON object, as its producer has written it.
type order struct {
	EventID  string `json:"event_id"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// line is one event as it stands in the input.
type line struct {
	number int
	text   []byte
}

// input is where the events come from. It is read twice: to feed the workers, and
// afterwards to compare the database with it.
type input interface {
	lines() iter.Seq2[line, error]
	total() int     // lines that are not empty; 0 if that is not known
	String() string // its name, for messages
}

var errNoID = errors.New("event_id is missing")

// parseOrder reads an event strictly: names are case-sensitive, as they are for the
// inbox when it looks for the id.
func parseOrder(text []byte) (order, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return order{}, fmt.Errorf("not a JSON object: %w", err)
	}
	if fields == nil {
		return order{}, errors.New("not a JSON object: null")
	}
	var o order
	for _, field := range []struct {
		name string
		into any
	}{{"event_id", &o.EventID}, {"sku", &o.SKU}, {"quantity", &o.Quantity}} {
		if raw, ok := fields[field.name]; ok {
			if err := json.Unmarshal(raw, field.into); err != nil {
				return order{}, fmt.Errorf("%s is %s, which does not fit", field.name, raw)
			}
		}
	}
	switch {
	case o.SKU == "":
		return o, errors.New("sku is missing")
	case o.Quantity <= 0:
		return o, errors.New("quantity is not a positive number")
	case strings.ContainsRune(o.SKU+o.EventID, 0):
		return o, errors.New("a NUL character, which a database cannot store as text")
	case o.EventID == "":
		return o, errNoID
	}
	return o, nil
}

// generated events are the same for the same seed and count. About one in twenty is
// sent again by the producer, with the same id.
type generated struct {
	seed  uint64
	count int
}

const resentPercent = 5

var articles = []string{
	"bench-oak", "chair-ash", "chair-oak", "desk-birch", "lamp-brass", "mirror-round",
	"rug-wool", "shelf-pine", "sofa-grey", "stool-beech", "table-oak", "vase-clay",
}

func (g generated) String() string { return "generated events" }
func (g generated) total() int     { return g.count + g.count*resentPercent/100 }

func (g generated) lines() iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		var seed [32]byte
		copy(seed[:], fmt.Sprint("quickstart ", g.seed))
		random := rand.NewChaCha8(seed)
		rng := rand.New(random) //nolint:gosec // the same events again are the point
		number := 0
		emit := func(text []byte) bool {
			number++
			return yield(line{number, text}, nil)
		}
		var recent [][]byte
		for range g.count {
			id, _ := uuid.NewRandomFromReader(random) // never fails
			text, err := json.Marshal(order{
				EventID: id.String(), SKU: articles[rng.IntN(len(articles))], Quantity: 1 + rng.Int64N(5),
			})
			if err != nil {
				yield(line{}, err)
				return
			}
			if !emit(text) {
				return
			}
			recent = append(recent, text)
			recent = recent[max(0, len(recent)-100):]
			if rng.IntN(100) < resentPercent && !emit(recent[rng.IntN(len(recent))]) {
				return
			}
		}
	}
}

// file is a file of JSON lines.
type file struct {
	name  string
	count int
}

// openFile makes sure that the file can be read, and counts its lines.
func openFile(name string) (*file, error) {
	f := &file{name: name}
	for _, err := range f.lines() {
		if err != nil {
			return nil, err
		}
		f.count++
	}
	if f.count == 0 {
		return nil, fmt.Errorf("%s: there are no events in it", name)
	}
	return f, nil
}

func (f *file) String() string { return f.name }
func (f *file) total() int     { return f.count }

func (f *file) lines() iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		r, err := os.Open(f.name)
		if err != nil {
			yield(line{}, err)
			return
		}
		defer func() { _ = r.Close() }()
		readLines(f.name, r, yield)
	}
}

// stdin can be read once only, so what is read is kept in a temporary file.
type stdin struct {
	file // the copy

	r     io.Reader
	spool *os.File
	read  bool
}

func openStdin(r io.Reader) (*stdin, error) {
	spool, err := os.CreateTemp("", "quickstart-*.jsonl")
	if err != nil {
		return nil, err
	}
	return &stdin{file: file{name: spool.Name()}, r: r, spool: spool}, nil
}

func (s *stdin) String() string { return "standard input" }

func (s *stdin) lines() iter.Seq2[line, error] {
	if s.read {
		return s.file.lines()
	}
	s.read = true
	return func(yield func(line, error) bool) {
		readLines("standard input", io.TeeReader(s.r, s.spool), yield)
	}
}

// Close removes the copy.
func (s *stdin) Close() error {
	return errors.Join(s.spool.Close(), os.Remove(s.name))
}

const maxLine = 64 << 20

func readLines(name string, r io.Reader, yield func(line, error) bool) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	number := 0
	for scanner.Scan() {
		number++
		if text := bytes.TrimSpace(scanner.Bytes()); len(text) > 0 && !yield(line{number, slices.Clone(text)}, nil) {
			return
		}
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		yield(line{}, fmt.Errorf("%s:%d: the line is longer than %d MiB", name, number+1, maxLine>>20))
	case err != nil:
		yield(line{}, fmt.Errorf("%s:%d: %w", name, number+1, err))
	}
}

// printable cuts a text for the terminal and quotes what does not belong there.
func printable(s string) string {
	const shown = 120
	if len(s) > shown {
		for s = s[:shown]; !utf8.ValidString(s) && len(s) > shown-4; {
			s = s[:len(s)-1]
		}
		s += "…"
	}
	quoted := fmt.Sprintf("%q", s)
	return quoted[1 : len(quoted)-1]
}
