package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names of recipes.
const (
	forwarderDefault = "Watermill's Forwarder, default schema"
	forwarderQueue   = "Watermill's Forwarder, queue schema"
)

// forwarderProgram builds the program in a directory of the site's.
func forwarderProgram(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	program := filepath.Join(dir, "forwarder")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(strings.TrimSpace(string(root)), "internal", "bench", "forwarder"), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the Forwarder: %w\n%s", err, out)
	}
	return program, nil
}

// forwards makes a job of messages that the program has written.
func forwards(program, schema, url string) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, _, n int) (*job, error) {
		cmd := exec.CommandContext(ctx, program, "-url", url, "-schema", schema, "-n", strconv.Itoa(n), "-payload", string(payload("output-0")))
		stderr := &strings.Builder{}
		cmd.Stderr = stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			return nil, fmt.Errorf("the Forwarder is not ready: %w: %s", errors.Join(lines.Err(), cmd.Wait()), stderr)
		}
		return &job{
			run: func() (time.Duration, []time.Duration, error) {
				if _, err := io.WriteString(in, "go\n"); err != nil {
					return 0, nil, err
				}
				if !lines.Scan() {
					return 0, nil, fmt.Errorf("the Forwarder has not ended: %w: %s", lines.Err(), stderr)
				}
				took, err := strconv.ParseInt(lines.Text(), 10, 64)
				return time.Duration(took), nil, err
			},
			close: func() error { return errors.Join(in.Close(), cmd.Wait()) },
		}, nil
	}
}

// forwarders compares the relay with Watermill's Forwarder.
func forwarders(ctx context.Context, s *site, o options) (*group, error) {
	program, err := forwarderProgram(ctx, o.dir)
	if err != nil {
		return nil, err
	}
	relay := relaying{db: s.used, clean: s.direct.emptyOutbox, to: toMemory}
	return &group{
		title: "PostgreSQL: relay and Watermill's Forwarder",
		about: relayAbout + " The Forwarder runs on watermill-sql v4.1.2 with pgx in a process of its own, whose CPU time is not measured. " +
			"Its messages are wrapped in its envelope and were written a hundred in each transaction; its queue schema deletes what is acked.",
		workers: []int{1}, longer: relayLonger, least: relayLeast, sharedCPU: true,
		recipes: []recipe{
			{name: forwarderDefault, job: forwards(program, "default", s.used.url)},
			{name: forwarderQueue, against: forwarderDefault, job: forwards(program, "queue", s.used.url)},
			{name: relayPlain, against: forwarderDefault, job: relay.job},
		},
		server: s.server, close: s.close,
	}, nil
}
