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

What ` + "`--help`" + ` prints, of every command; made by ` + "`go test ./cmd/millpond -run TestReference -update`" + `.
How to get it, and how to work with it: [the tool](operations.md#the-tool). ` + "`millpond completion`" + ` prints completions
for bash, zsh, fish and PowerShell.

`)
	root := (&program{console: &console{}}).root()
	root.InitDefaultHelpFlag()
	writeReference(&b, root)
	return b.String()
}

func writeReference(b *strings.Builder, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	var help strings.Builder
	help.WriteString(strings.TrimSpace(cmd.Long))
	if cmd.Long == "" {
		help.WriteString(cmd.Short)
	}
	usage, _, _ := strings.Cut(cmd.UsageString(), "\nGlobal Flags:") // those of millpond itself
	usage, _, _ = strings.Cut(usage, "\nUse \"")
	fmt.Fprintf(b, "## %s\n\n```text\n%s\n\n%s```\n\n", cmd.CommandPath(), help.String(), usage)
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			writeReference(b, sub)
		}
	}
}
