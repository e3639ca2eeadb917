package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// operator works with the command millpond, as people do: in a process of its own, on
// the store of the running service.
type operator struct {
	binary string
	store  string
	out    io.Writer // what a terminal would show
}

// buildMillpond builds the command, unless the options name one that is there.
func buildMillpond(ctx context.Context, o options) (binary string, remove func() error, err error) {
	if o.millpond != "" {
		return o.millpond, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "millpond")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	binary = filepath.Join(dir, "millpond")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/millpond-go/millpond/cmd/millpond")
	if said, err := build.CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("cannot build the command millpond; run this inside its module, or give --millpond: %w\n%s", err, said), remove())
	}
	return binary, remove, nil
}

// command is a command line without its first word.
func command(args ...string) []string { return args }

// each runs commands one after the other.
func (o *operator) each(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if err := o.run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// run runs one command and shows it with all that it says.
func (o *operator) run(ctx context.Context, args ...string) error {
	fmt.Fprintf(o.out, "\n$ millpond %s\n", commandLine(args))
	cmd := o.command(ctx, args)
	cmd.Stdout, cmd.Stderr = o.out, o.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("millpond %s: %w", commandLine(args), err)
	}
	return nil
}

func (o *operator) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.binary, args...)
	cmd.Env = append(os.Environ(), "MILLPOND_STORE_URL="+o.store)
	return cmd
}

// cause returns the only cause of a class, which people would copy from cause ls.
func (o *operator) cause(ctx context.Context, class string) (string, error) {
	args := []string{"cause", "ls", "--class", class, "--output", "json"}
	var said bytes.Buffer
	cmd := o.command(ctx, args)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("millpond %s: %w: %s", commandLine(args), err, &said)
	}
	var causes []struct {
		Cause string `json:"cause"`
	}
	if err := json.Unmarshal(out, &causes); err != nil {
		return "", fmt.Errorf("millpond %s: %w", commandLine(args), err)
	}
	if len(causes) != 1 {
		return "", fmt.Errorf("%d causes of class %s: %s", len(causes), class, out)
	}
	return causes[0].Cause, nil
}

// commandLine writes arguments as one types them.
func commandLine(args []string) string {
	var b strings.Builder
	for i, arg := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if strings.Contains(arg, " ") {
			arg = `"` + arg + `"`
		}
		b.WriteString(arg)
	}
	return b.String()
}
