package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// TestReference compares docs/cli.md with the help of the commands.
func TestReference(t *testing.T) {
	const page = "../../docs/cli.md"
	reference := commandReference()
	if *update {
		if err := os.WriteFile(page, []byte(reference), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != reference {
		t.Error("docs/cli.md is not what the commands say: run go test ./cmd/millpond -run TestReference -update")
	}
}

func commandReference() string {
	var b strings.Builder
	b.WriteString(`# The command millpond

The ` + "`--help`" + ` of every command, written by ` + "`go test ./cmd/millpond -run TestReference -update`" + `. How to install and use
the command: [the tool](operations.md#the-tool). ` + "`millpond completion`" + ` prints completions for bash, zsh, fish and
PowerShell.

`)
	root := (&program{console: &console{}}).root()
	root.InitDefaultHelpFlag()
	writeReference(&b, root)
	return b.String()
}

func writeReference(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "## %s\n\n```text\n%s\n```\n\n", cmd.CommandPath(), helpText(cmd))
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			writeReference(b, sub)
		}
	}
}

// The manual page has every command, and no line of a help is taken for a request.
func TestManualPage(t *testing.T) {
	n, _ := newScripted(t, 1)
	page := n.ok("man")
	for _, words := range runnable((&program{console: n.console}).root()) {
		title := ".SH MILLPOND " + strings.ToUpper(strings.Join(words, " ")) + "\n"
		if words[0] != "man" && !strings.Contains(page, title) {
			t.Errorf("there is no %q", title)
		}
	}
	for line := range strings.Lines(page) {
		request, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, ".") && request != ".TH" && request != ".SH" && request != ".nf" && request != ".fi" {
			t.Errorf("%q is taken for a request", line)
		}
	}
	if got := roff(".a\n'b\n-c\\d"); got != "\\&.a\n\\&'b\n\\-c\\ed" {
		t.Errorf("roff made %q", got)
	}
}
