package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// manCommand prints the man page, for packages of the program.
func (p *program) manCommand() *cobra.Command {
	return explained(&cobra.Command{
		Use:    "man",
		Short:  "Print the manual page, millpond(1)",
		Args:   noArguments,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(p.out, manPage(cmd.Root()))
			return err
		},
	}, nil, nil)
}

// manPage has the help of every command.
func manPage(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH MILLPOND 1\n.SH NAME\nmillpond \\- %s\n", roff(strings.ToLower(root.Short[:1])+root.Short[1:]))
	manSection(&b, root)
	return b.String()
}

func manSection(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, ".SH %s\n.nf\n%s\n.fi\n", roff(strings.ToUpper(cmd.CommandPath())), roff(helpText(cmd)))
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			manSection(b, sub)
		}
	}
}

// helpText is a command's --help output, without the flags that all commands have.
func helpText(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	text := strings.TrimSpace(cmd.Long)
	if text == "" {
		text = cmd.Short
	}
	usage, _, _ := strings.Cut(cmd.UsageString(), "\nGlobal Flags:")
	usage, _, _ = strings.Cut(usage, "\nUse \"")
	return text + "\n\n" + strings.TrimSpace(usage)
}

// roff escapes text whose lines may look like requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
