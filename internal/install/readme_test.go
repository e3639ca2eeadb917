package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv"
)

// TestREADMEInABlankModule runs README's commands one after the other, with its code
// between them, and then those of the page about the tool. A command that it does not
// know what to do with is an error.
func TestREADMEInABlankModule(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	commands := goCommands(readme)
	m := newBlankModule(t)
	next := func(verb string) {
		t.Helper()
		if len(commands) == 0 || !strings.HasPrefix(commands[0], verb) {
			t.Fatalf("README goes on with %q, this test knows what to do with %q", commands, verb)
		}
		if out := m.run(t, commands[0]); out != "" {
			t.Logf("%s\n%s", commands[0], out)
		}
		commands = commands[1:]
	}

	next("go get " + modulePath + "/")
	m.write(t, "main.go", program(t, readme))
	m.run(t, "go build ./...")

	// A package of a library that is there already, which needs another one.
	m.write(t, "later.go", "package main\n\nimport _ \"github.com/ThreeDotsLabs/watermill/message/router/middleware\"\n")
	next("go mod tidy")
	m.run(t, "go build ./...")

	m.env = append(m.env, "MILLPOND_STORE_URL="+testenv.Postgres(t).NewDatabase(t))
	next("go get -tool ")
	next("go tool millpond migrate up")
	if len(commands) > 0 {
		t.Errorf("nobody has tried %q of README", commands)
	}
	for _, command := range goCommands(read(t, "docs/operations.md")) {
		m.run(t, command)
	}
	m.run(t, "go mod tidy")
	if out := m.run(t, "go tool millpond migrate status"); !strings.Contains(out, "applied") {
		t.Errorf("README's tool has not migrated:\n%s", out)
	}
	m.run(t, "go vet ./...")
}

// TestDocumentsInstallAsREADMEDoes: no document gets or runs the module by a command that
// nobody has tried.
func TestDocumentsInstallAsREADMEDoes(t *testing.T) {
	t.Parallel()
	tried := append(goCommands(read(t, "README.md")), goCommands(read(t, "docs/operations.md"))...)
	names := regexp.MustCompile("go (get|run|install|build)[^`\n#]*" + regexp.QuoteMeta(modulePath) + "[^`\n#]*")
	for _, name := range documents(t) {
		for _, command := range names.FindAllString(read(t, name), -1) {
			if command = strings.TrimSpace(command); !slices.Contains(tried, command) {
				t.Errorf("%s: %q is not among the commands that are tried: %q", name, command, tried)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if filepath.Ext(name) == ".md" {
			name, err = filepath.Rel(root, name)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var (
	shell   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	example = regexp.MustCompile("(?ms)^<!-- example: stores/postgres/example_test.go ExampleNew -->\n```go\n(.*?)^```")
)

// goCommands are those of a document's code blocks, without their comments.
func goCommands(document string) []string {
	var commands []string
	for _, block := range shell.FindAllStringSubmatch(document, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, "#")
			if command = strings.TrimSpace(command); strings.HasPrefix(command, "go ") {
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// program is README's code, and what it says it has.
func program(t *testing.T, readme string) string {
	t.Helper()
	blocks := example.FindAllStringSubmatch(readme, -1)
	if len(blocks) != 2 {
		t.Fatalf("README has %d blocks of ExampleNew, this test knows of two: the code and its imports", len(blocks))
	}
	return `package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

` + blocks[1][1] + `)

func wire(ctx context.Context, pool *pgxpool.Pool, router *message.Router, subscriber message.Subscriber) error {
` + blocks[0][1] + `	return nil
}

func main() { _ = wire }
`
}
