package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
)

// decision has the flags of all commands that change messages.
type decision struct {
	actor, reason string
	yes           bool
}

func (d *decision) bind(cmd *cobra.Command, p *program) {
	f := cmd.Flags()
	f.StringVar(&d.actor, "actor", "", "`who` decides, for the audit (default: user@host)")
	f.StringVar(&d.reason, "reason", "", "`why`, for the audit")
	f.BoolVarP(&d.yes, "yes", "y", false, "do not ask for confirmation")
	cmd.PreRun = func(*cobra.Command, []string) {
		if d.actor == "" {
			d.actor = p.whoami()
		}
	}
}

// whoami returns user@host, as far as known.
func (p *program) whoami() string {
	name := cmp.Or(p.env("USER"), p.env("LOGNAME"))
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return cmp.Or(name, "unknown") + "@" + host
}

// confirm returns nil if the action was confirmed, at the terminal or with --yes.
func (p *program) confirm(ctx context.Context, yes bool, what string) error {
	if yes {
		return nil
	}
	if !p.inTTY || !p.errTTY {
		return usagef("this would %s: add --yes where there is no terminal to ask on, or --dry-run to see more", what)
	}
	fmt.Fprintf(p.err, "%s%s? [y/N] ", strings.ToUpper(what[:1]), what[1:])
	answer := make(chan string, 1)
	go func() { // reading a terminal cannot be canceled; the program ends soon
		line, err := bufio.NewReader(p.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(p.err)
	}
	return errors.New("not confirmed, nothing was changed")
}
