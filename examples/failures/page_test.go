package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what this run shows into docs/tutorials/break-and-repair.md")

const page = "../../docs/tutorials/break-and-repair.md"

// TestPage compares the transcript in the document with a run of today: both say the
// same, but for times and what depends on them.
func TestPage(t *testing.T) {
	code, out, messages := failures(t, "--db", filepath.Join(t.TempDir(), "failures.db"))
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, messages)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		text = []byte(rewrite(t, string(text), out))
		if err := os.WriteFile(page, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said, shown := normal(strings.Join(blocks(string(text)), "\n")), normal(out)
	for i := range max(len(said), len(shown)) {
		if i >= len(said) || i >= len(shown) || said[i] != shown[i] {
			t.Fatalf("%s is not what a run shows (go test ./examples/failures -run TestPage -update), from here on:\nsays  %q\nshows %q",
				page, said[min(i, len(said)):min(i+3, len(said))], shown[min(i, len(shown)):min(i+3, len(shown))])
		}
	}
}

var console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// blocks returns the transcript, as it is spread over the page. The first line of all
// is how to start it.
func blocks(page string) []string {
	var blocks []string
	for _, m := range console.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, strings.TrimPrefix(m[1], "$ make failures\n"))
	}
	return blocks
}

// What differs from run to run: times, and the order in which messages failed.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d(T[\d:]+Z|…)`), "TIME"},
	{regexp.MustCompile(`\b(now|\d+ \w+ ago)\b`), "AGO"},
	{regexp.MustCompile(`order-\d{4}`), "ORDER"},
	{regexp.MustCompile(`^native id +\S+`), "native id ID"},
	{regexp.MustCompile(`^number \d+`), "number N"},
	{regexp.MustCompile(`\((\w+\.go):\d+\)$`), "($1:LINE)"},
	{regexp.MustCompile(`^(\d+) AGO discard \d+`), "$1 AGO discard N"},
}

// normal returns the lines that say something, without what varies.
func normal(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		for _, v := range varying {
			line = v.pattern.ReplaceAllString(line, v.with)
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// rewrite puts a new transcript into the blocks of the page, which begin where they
// have begun before.
func rewrite(t *testing.T, page, out string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var begins []int
	for _, block := range blocks(page) {
		first := begin(block)
		at := slices.IndexFunc(lines, func(line string) bool { return begin(line) == first })
		if at < 0 || len(begins) > 0 && at <= begins[len(begins)-1] {
			t.Fatalf("no block can begin with %q: begin it elsewhere", first)
		}
		begins = append(begins, at)
		lines[at] = "\x00" + lines[at] // the next one like it begins another block
	}
	if len(begins) == 0 || begins[0] != 0 {
		t.Fatal("the first block has to begin as the transcript does")
	}
	begins = append(begins, len(lines))
	n := -1
	return console.ReplaceAllStringFunc(page, func(string) string {
		n++
		start := ""
		if n == 0 {
			start = "$ make failures\n"
		}
		part := strings.Join(lines[begins[n]:begins[n+1]], "\n")
		return "```console\n" + start + strings.TrimSpace(strings.ReplaceAll(part, "\x00", "")) + "\n```"
	})
}

var cause = regexp.MustCompile(`\b[0-9a-f]{12}\b`)

// begin returns the first line of a text, also if its causes have other fingerprints.
func begin(text string) string {
	if lines := normal(text); len(lines) > 0 {
		return cause.ReplaceAllString(lines[0], "CAUSE")
	}
	return ""
}
