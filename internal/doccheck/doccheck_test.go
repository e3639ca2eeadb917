package doccheck

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestDocuments(t *testing.T) {
	problems, err := Check(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

const exampleFile = `package stores_test

import (
	"context"
	_ "embed"
)

type order struct{ ID string }

func ExampleOpen() {
	ctx := context.Background()
	first(ctx)
	second(ctx) // then
	third(ctx)
}

func TestInbox(t *testing.T) { t.Run("seen twice", nil) }
`

// Every check is shown a tree that it has to complain about, and one that it has to
// let pass.
func TestCheck(t *testing.T) {
	const snippet = "<!-- example: stores/example_test.go ExampleOpen -->\n\n```go\n"
	// Not in one piece, because this file is checked too.
	todo, delivery := "TO"+"DO", "deliv"+"ery"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string // "": nothing is wrong
	}{
		{"a test that exists", docs("`TestInbox` and `ExampleOpen` show it."), ""},
		{"a test that does not exist", docs("So says `TestOutbox`."), "docs/a.md:1: there is no function TestOutbox"},
		{"a benchmark that does not exist, in code", docs("```text\ngo test -bench BenchmarkClaim\n```"), "docs/a.md:2: there is no function BenchmarkClaim"},
		{"a test of another module", docs("Watermill's `tests.TestPubSub` passes."), ""},
		{"a test of our own package that does not exist", docs("See `stores.TestOutbox`."), "docs/a.md:1: there is no function TestOutbox"},
		{"a subtest that exists", docs("See `TestInbox/seen_twice`."), ""},
		{"a subtest that does not exist", docs("See `TestInbox/seen_never`."), `docs/a.md:1: TestInbox has no subtest "seen_never"`},

		{"a link to a file", docs("[example](../stores/example_test.go) [site](https://example.org/x) [folder](../stores/)"), ""},
		{"a link to nothing", docs("first\n\n[gone](gone.md)"), "docs/a.md:3: the link to gone.md is broken: there is no docs/gone.md"},
		{"a reference to nothing", docs("[gone]: gone.md"), "docs/a.md:1: the link to gone.md is broken"},
		{"a picture of nothing", docs(`<img src="flow.svg">`), "docs/a.md:1: the link to flow.svg is broken"},
		{"a link out of the tree", docs("[out](../../other/)"), "docs/a.md:1: the link to ../../other/ is broken: it leaves"},
		{"a link to a heading", docs("# What *is* `it`?\n\n# Twice\n\n# Twice\n\n[here](#what-is-it) [there](a.md#twice-1)"), ""},
		{"a link to no heading", docs("# What\n\n[here](#that)"), "docs/a.md:3: the link to #that is broken: docs/a.md has no heading #that"},
		{"links in code", docs("`[a](b)`\n```\n[a](b)\n```"), ""},
		{"links in a fence in a fence", docs("````md\n```\n[a](b)\n```\n````"), ""},

		{"Go code of an example", docs(snippet + "  ctx := context.Background()\n\n  // …\n  third(ctx)\n```"), ""},
		{"Go code of its file", docs(snippet + "import (\n  _ \"embed\"\n)\n\ntype order struct{ ID string }\nfirst(ctx)\n```"), ""},
		{"Go code without an example", docs("```go\nfirst(ctx)\n```"), "docs/a.md:1: put the example that this Go code is copied from"},
		{"Go code that is not in the example", docs(snippet + "first(ctx)\nsecond(ctx)\n```"), `docs/a.md:5: "second(ctx)" is not in stores/example_test.go`},
		{"Go code in another order", docs(snippet + "third(ctx)\nfirst(ctx)\n```"), `docs/a.md:5: "first(ctx)" is not in stores/example_test.go`},
		{"Go code of no file", docs("<!-- example: stores/none_test.go ExampleOpen -->\n```go\n```"), "docs/a.md:2: there is no test file or example's program stores/none_test.go"},
		{"Go code of a test", docs("<!-- example: stores/example_test.go TestInbox -->\n```go\n```"), "docs/a.md:2: stores/example_test.go has no example TestInbox"},
		{"a program of an example", map[string]string{"docs/a.md": "<!-- example: examples/a/main.go main -->\n```go\nfunc main() { run() }\n```", "examples/a/main.go": "package main\n\nfunc main() { run() }\n"}, ""},
		{"a program that is another one", map[string]string{"docs/a.md": "<!-- example: examples/a/main.go main -->\n```go\nfunc main() { walk() }\n```", "examples/a/main.go": "package main\n\nfunc main() { run() }\n"}, `docs/a.md:3: "func main() { walk() }" is not in examples/a/main.go`},
		{"code in other languages", docs("```sql\nSELECT 1\n```"), ""},

		{"commands that nobody runs", docs("```sh\nmake run\n```"), "docs/a.md:1: say on the line above these commands who runs them"},
		{"commands that are not run, for a reason", docs("<!-- not run: needs Docker -->\n```console\nmake run\n```"), ""},
		{"commands that are not run, for no reason", docs("<!-- not run: -->\n```sh\nmake run\n```"), "docs/a.md:2: say on the line above"},
		{"commands that CI runs", commandTree("docs/a.md", "run: .ci/run", "make run"), ""},
		{"commands that CI does not run", commandTree("docs/a.md", "run: .ci/run", "make swap"), "docs/a.md:2: .ci/run does not make swap"},
		{"commands that a test beside them runs", commandTree("stores/README.md", "run: stores/example_test.go TestInbox", "make run"), ""},
		{"commands that a test runs which reads them", commandTree("docs/a.md", "run: tool/a_test.go TestPage", "make run"), ""},
		{"commands that a test runs in part", commandTree("docs/a.md", "run: tool/a_test.go TestPage; not run: psql, a client of yours", "make run"), ""},
		{"commands that a test would have to read", commandTree("docs/b.md", "run: tool/a_test.go TestPage", "make run"), "docs/b.md:2: no test beside tool/a_test.go reads this document"},
		{"commands that a test runs which nobody has written", commandTree("docs/a.md", "run: tool/a_test.go TestInbox", "make run"), `docs/a.md:2: tool/a_test.go has no test "TestInbox"`},

		{"work left open in a document", docs(todo + ": more"), "docs/a.md:1: something is left open"},
		{"work left open in code", map[string]string{"a/a.go": "package a\n\n// FIX" + "ME\n"}, "a/a.go:3: something is left open"},
		{"work left open in a script", map[string]string{".ci/run": "# " + todo}, ".ci/run:1: something is left open"},
		{"a name that only looks so", map[string]string{"a/a.go": "package a\n\nvar _ = context." + todo + "()\n"}, ""},
		{"files that nobody wrote", map[string]string{"bin/a.md": todo, ".git/a.md": todo}, ""},
		{"a file that does not parse", map[string]string{"a/a.go": "package a\n\nfunc {\n"}, "a/a.go:3: it does not parse"},

		{"an error that the page has", errorTree("| `stores: gone` | `stores.ErrGone` |"), ""},
		{"an error that the page does not have", errorTree("| `stores: gone` |"), "stores/a.go:5: docs/errors.md does not have stores.ErrGone"},
		{"an error with another text", errorTree("| `stores: away` | `stores.ErrGone` |"), "stores/a.go:5: docs/errors.md does not have the text of stores.ErrGone: stores: gone"},
		{"an error of another package's with another text", map[string]string{
			"docs/errors.md":                    "`middleware.ErrGone` `delivery: away`",
			"middleware/a.go":                   "package middleware\n\nvar ErrGone = delivery.ErrGone\n",
			"middleware/internal/delivery/a.go": "package delivery\n\nvar ErrGone = errors.New(\"delivery: gone\")\n",
		}, "middleware/a.go:3: docs/errors.md does not have the text of middleware.ErrGone: delivery: gone"},
		{"an error that programs cannot name, with its text", map[string]string{
			"docs/errors.md":                    "`middleware: gone`",
			"middleware/internal/delivery/a.go": "package delivery\n\nvar errGone = errors.New(\"middleware: gone\")\n",
		}, ""},
		{"an error that programs cannot name, without its text", map[string]string{
			"docs/errors.md":                    "",
			"middleware/internal/delivery/a.go": "package delivery\n\nvar errGone = errors.New(\"middleware: gone\")\n",
		}, "middleware/internal/delivery/a.go:3: docs/errors.md does not have this text, which operators read: middleware: gone"},
		{"an error of the page that does not exist", errorTree("| `stores: gone` | `stores.ErrGone`, `stores.ErrHere` |"), "docs/errors.md:1: there is no error stores.ErrHere"},
		{"a type of errors that the page does not have", map[string]string{"docs/errors.md": "", "router/a.go": "package router\n\ntype ConfigError struct{}\n"}, "router/a.go:3: docs/errors.md does not have router.ConfigError"},

		{"an interface that the contract's comment has", contractTree("// Package stores has [Inbox]."), ""},
		{"an interface that it does not have", contractTree("// Package stores has Inbox."), "stores/a.go:3: stores/doc.go does not say what Inbox is for"},
		{"a file that is too long", map[string]string{"router/a.go": "package router\n" + strings.Repeat("\n", 400)}, "router/a.go:401: the file has 401 lines"},
		{"a test that is long", map[string]string{"router/a_test.go": "package router\n" + strings.Repeat("\n", 400)}, ""},

		{"the promise", docs("It gives exactly-once " + delivery + "."), "docs/a.md:1: nobody can promise this"},
		{"the promise in the second line", docs("It gives\nexactly-once " + delivery + "."), "docs/a.md:2: nobody can promise this"},
		{"the promise over two lines", map[string]string{"a/a.go": "// It gives Exactly once\n// " + delivery + ".\npackage a\n"}, "a/a.go:1: nobody can promise this"},
		{"the promise, denied afterwards", docs("Exactly-once " + delivery + " is what it is not."), "docs/a.md:1: nobody can promise this"},
		{"the promise, denied in another line", docs("This is not exactly-once " + delivery + ", which is never\nexactly-once\n" + delivery + "."), "docs/a.md:2: nobody can promise this"},
		{"the promise, denied in the line", docs("This is not exactly-once " + delivery + "."), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := fstest.MapFS{"stores/example_test.go": {Data: []byte(exampleFile)}}
			for name, text := range test.files {
				tree[name] = &fstest.MapFile{Data: []byte(text)}
			}
			problems, err := Check(tree)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.want == "" && len(problems) == 0:
			case len(problems) == 1 && test.want != "" && strings.HasPrefix(problems[0].String(), test.want):
			default:
				t.Errorf("want %q\ngot %q", test.want, problems)
			}
		})
	}
}

func docs(text string) map[string]string { return map[string]string{"docs/a.md": text} }

func errorTree(page string) map[string]string {
	return map[string]string{
		"docs/errors.md": page,
		"stores/a.go":    "package stores\n\nimport \"errors\"\n\nvar ErrGone = errors.New(\"stores: gone\")\n",
	}
}

// commandTree is a document with a command, what CI runs, and a test that reads docs/a.md.
func commandTree(document, mark, command string) map[string]string {
	return map[string]string{
		document:         "<!-- " + mark + " -->\n```sh\n" + command + "\n```\n",
		".ci/run":        "run \"quickstart\" make --no-print-directory run\n",
		"tool/a_test.go": "package tool\n\nconst page = \"../docs/a.md\"\n\nfunc TestPage() {}\n",
	}
}

func contractTree(comment string) map[string]string {
	return map[string]string{
		"stores/doc.go": comment + "\npackage stores\n",
		"stores/a.go":   "package stores\n\ntype Inbox interface{}\n",
	}
}
