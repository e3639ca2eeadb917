package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestInABlankModule(t *testing.T) {
	t.Parallel()
	tree := publish(t)
	t.Run("README", func(t *testing.T) { followREADME(t, tree) })
	for name, try := range rotation.Some(t, 1, map[string]func(*testing.T, published){"five minutes": takeFiveMinutes, "clone": getFromClone}) {
		t.Run(name, func(t *testing.T) { try(t, tree) })
	}
}

// getFromClone runs README's commands that get the module in one that stands beside a clone.
func getFromClone(t *testing.T, tree published) {
	t.Helper()
	readme := read(t, "README.md")
	replace := regexp.MustCompile("`(go mod edit -replace [^`]+=)([^`]+)`").FindStringSubmatch(readme)
	if replace == nil {
		t.Fatal("README does not say how a module gets millpond from a clone")
	}
	m := tree.newBlankModule(t)
	m.env = append(m.env, "GOPROXY="+tree.others) // nobody has this tree but the clone
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	m.run(t, replace[1]+clone)
	m.write(t, "main.go", program(t, readme))
	for _, command := range goCommands(readme) {
		if strings.HasPrefix(command, "go mod ") {
			m.run(t, command)
		}
	}
	m.run(t, "go vet ./...")
	m.run(t, "go tool millpond version")
	if out := m.run(t, "go list -m "+modulePath); !strings.HasSuffix(out, " => "+clone+"\n") {
		t.Errorf("README's commands got %s", out)
	}
}

// followREADME runs README's commands one after the other, with its code
// between them, and then those of the page about the tool. A command that it does not
// know what to do with is an error.
func followREADME(t *testing.T, tree published) {
	t.Helper()
	readme := read(t, "README.md")
	commands := goCommands(readme)
	m := tree.newBlankModule(t)
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

	m.write(t, "main.go", program(t, readme))
	next("go mod edit -tool ")
	next("go mod tidy")
	m.env = append(m.env, "MILLPOND_STORE_URL="+testenv.Postgres(t).NewDatabase(t))
	if out := m.run(t, "go run ."); !strings.HasSuffix(out, "pieces: 9\n") {
		t.Errorf("README's program, with three deliveries of one message:\n%s", out)
	}

	next("go tool millpond migrate up")
	if len(commands) > 0 {
		t.Errorf("nobody has tried %q of README", commands)
	}
	for _, command := range goCommands(read(t, "docs/operations.md")) {
		m.run(t, command)
	}
	if out := m.run(t, "go tool millpond migrate status"); !strings.Contains(out, "applied") {
		t.Errorf("README's tool has not migrated:\n%s", out)
	}
	m.run(t, "go vet ./...")
}

// takeFiveMinutes does what the tutorial says, and sees what it shows.
func takeFiveMinutes(t *testing.T, tree published) {
	t.Helper()
	const page = "docs/tutorials/five-minutes.md"
	tutorial := read(t, page)
	m := tree.newBlankModule(t)
	pasted := regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```").FindStringSubmatch(tutorial)
	shown := regexp.MustCompile("(?s)The first run prints:\n\n```\n(.*?)```").FindStringSubmatch(tutorial)
	if pasted == nil || shown == nil {
		t.Fatalf("%s has no program, or does not say what it prints", page)
	}
	m.write(t, "main.go", pasted[1])
	var outputs []string
	for _, command := range goCommands(tutorial) {
		if strings.HasPrefix(command, "go mod init ") {
			continue // newBlankModule has
		}
		out := m.run(t, command)
		if strings.HasPrefix(command, "go run ") {
			outputs = append(outputs, out)
		}
	}
	want := []string{shown[1], "cups left: 9\n"}
	if !slices.Equal(outputs, want) {
		t.Errorf("%s shows %q, a run prints %q", page, want, outputs)
	}
	breakIt(t, m, tutorial, pasted[1])
}

// breakIt does the tutorial's last step: the handler fails, and then it does not.
func breakIt(t *testing.T, m *blankModule, tutorial, pasted string) {
	t.Helper()
	failure := regexp.MustCompile("end `deduct` with `(return errors[^`]+)`").FindStringSubmatch(tutorial)
	look := regexp.MustCompile("`(go tool millpond cause ls[^`]+)`").FindStringSubmatch(tutorial)
	if failure == nil || look == nil {
		t.Fatal("the tutorial does not say how to break it, or how to see that")
	}
	repaired := strings.Replace(pasted, `"order-1"`, `"order-2"`, 1)
	broken := strings.Replace(repaired, "string(msg.Payload))\n\treturn err\n", "string(msg.Payload))\n\t"+failure[1]+"\n", 1)
	m.write(t, "main.go", broken)
	if out := m.run(t, "go run ."); !strings.Contains(out, "delivery parked") || !strings.Contains(out, "cups left: 9\n") {
		t.Errorf("the broken program prints %q", out)
	}
	if out := m.run(t, look[1]); !strings.Contains(out, "the shelf is locked") {
		t.Errorf("%s shows %q", look[1], out)
	}
	m.write(t, "main.go", repaired)
	testenv.Eventually(t, "the order is deducted by its next attempt", func() bool {
		return m.run(t, "go run .") == "cups left: 8\n"
	})
}

// TestDocumentsInstallAsREADMEDoes: no document gets or runs the module by a command that
// nobody has tried.
func TestDocumentsInstallAsREADMEDoes(t *testing.T) {
	t.Parallel()
	tried := slices.Concat(goCommands(read(t, "README.md")), goCommands(read(t, "docs/operations.md")), goCommands(read(t, "docs/tutorials/five-minutes.md")))
	names := regexp.MustCompile("go (get|run|install|build|mod edit -tool)[^`\n#]*" + regexp.QuoteMeta(modulePath) + "[^`\n#]*")
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
	example = regexp.MustCompile("(?ms)^<!-- example: stores/postgres/example_test.go Example_shop -->\n```go\n(.*?)^```")
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

// program is README's code with the error checks that it leaves out, on a broker in the
// process that delivers one message three times.
func program(t *testing.T, readme string) string {
	t.Helper()
	blocks := example.FindAllStringSubmatch(readme, -1)
	if len(blocks) != 2 {
		t.Fatalf("README has %d blocks of Example_shop, this test knows of two: the code and its imports", len(blocks))
	}
	return `package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

` + blocks[1][1] + `)

func run(ctx context.Context, databaseURL string, router *message.Router, subscriber message.Subscriber) error {
` + strings.ReplaceAll(blocks[0][1], "\n...\n", "\nif err != nil {\n\treturn err\n}\n") + `}

func main() {
	ctx := context.Background()
	databaseURL := os.Getenv("MILLPOND_STORE_URL")
	db, err := pgx.Connect(ctx, databaseURL)
	check(err)
	_, err = db.Exec(ctx, "CREATE TABLE stock (item text PRIMARY KEY, pieces int); INSERT INTO stock VALUES ('cup', 10)")
	check(err)
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, databaseURL, router, broker) }()
	<-router.Running()
	for range 3 {
		check(broker.Publish("orders", message.NewMessage("order-1", []byte("cup"))))
	}
	check(router.Close())
	check(<-ended)
	var pieces int
	check(db.QueryRow(ctx, "SELECT pieces FROM stock").Scan(&pieces))
	fmt.Println("pieces:", pieces)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`
}
