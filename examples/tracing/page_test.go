package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what this run shows into docs/tracing.md and docs/tracing.svg")

const (
	page    = "../../docs/tracing.md"
	picture = "../../docs/tracing.svg"
)

// comparePage compares a run with the page: the trees word by word, the picture but for
// times.
func comparePage(t *testing.T, out, drawn string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		text = rewrite(string(text), out)
		if err := os.WriteFile(page, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(picture, read(t, drawn), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const how = "(go test -C examples/tracing -run TestEverywhereTheSame -update ./...)"
	if said := strings.Join(blocks(string(text)), "\n"); said != out {
		t.Errorf("%s is not what a run shows %s.\nIt says\n%s\nand the run shows\n%s", page, how, said, out)
	}
	if said, shown := labels(t, picture), labels(t, drawn); !slices.Equal(said, shown) {
		t.Errorf("%s is not what a run shows %s:\n%q\nand the run shows\n%q", picture, how, said, shown)
	}
}

const start = "$ make tracing\n"

var console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// blocks returns the transcript, as it is spread over the page.
func blocks(page string) []string {
	var blocks []string
	for _, m := range console.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, strings.TrimPrefix(m[1], start))
	}
	return blocks
}

// rewrite puts a transcript into the two blocks of the page: the trees, and the metrics.
func rewrite(page, out string) []byte {
	trees, metrics, _ := strings.Cut(out, "\nGET ")
	parts := []string{start + trees, "GET " + metrics}
	return []byte(console.ReplaceAllStringFunc(page, func(string) string {
		part := parts[0]
		parts = append(parts[1:], "")
		return "```console\n" + part + "```"
	}))
}

var times = regexp.MustCompile(`^[\d.]+ ms *`)

// labels returns the texts of a picture, without times.
func labels(t *testing.T, name string) []string {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(string(read(t, name))))
	var labels []string
	inText := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return labels
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				labels = append(labels, times.ReplaceAllString(string(token), ""))
			}
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
