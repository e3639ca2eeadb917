package main

import (
	"context"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/millpond-go/millpond/stores"
)

// console is the environment of the program.
type console struct {
	in                     io.Reader
	out, err               io.Writer
	inTTY, outTTY, errTTY  bool // each is a terminal
	env                    func(string) string
	now                    func() time.Time
	open                   func(ctx context.Context, url string) (store, error)
	batch                  int // messages changed in one transaction
	sayEvery               time.Duration
	countLimit, causeLimit int // bounds of counts, and of the causes in a dry run
}

// store is what the program needs from a store.
type store interface {
	stores.Inspector
	stores.Migrator
	io.Closer
}

func newConsole() *console {
	terminal := func(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }
	return &console{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTTY: terminal(os.Stdin), outTTY: terminal(os.Stdout), errTTY: terminal(os.Stderr),
		env: os.Getenv, now: time.Now,
		open:       openStore,
		batch:      500,
		sayEvery:   5 * time.Second,
		countLimit: 10_000, causeLimit: 100,
	}
}

// openStore is stores.Open for people, who cannot import an adapter into this program.
func openStore(ctx context.Context, rawURL string) (store, error) {
	known := stores.DefaultMux().Schemes()
	u, err := url.Parse(rawURL)
	switch {
	case err == nil && u.Scheme == "":
		return nil, usagef("the store's URL has no scheme: write postgres://…, mysql://…, dynamodb://… or sqlite://file.db")
	case err == nil && !slices.Contains(known, u.Scheme):
		return nil, usagef("the store's URL has the scheme %q: the tool knows %s", u.Scheme, strings.Join(known, ", "))
	}
	return stores.Open(ctx, rawURL)
}
