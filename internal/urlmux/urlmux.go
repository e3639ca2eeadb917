// Package urlmux opens things by the scheme of a URL. The contracts of stores and
// brokers each export their own mux on top of it.
package urlmux

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// FixUnparsed is the fix for a URL that cannot be parsed. The mistake itself cannot be
// named without repeating a part of the URL.
const FixUnparsed = "write scheme://…, check host:port, with a port for each of several hosts, and percent-encode special characters in a password"

// Opener opens a T from a URL.
type Opener[T any] func(ctx context.Context, u *url.URL) (T, error)

// Opened makes an opener of one that returns a pointer, which is a T: a nil pointer is no nil
// interface.
func Opened[T, P any](open func(ctx context.Context, u *url.URL) (P, error)) func(context.Context, *url.URL) (T, error) {
	return func(ctx context.Context, u *url.URL) (none T, err error) {
		opened, err := open(ctx, u)
		if err != nil {
			return none, err
		}
		return any(opened).(T), nil
	}
}

// Open opens a T with the configuration that a URL stands for.
func Open[T, C, P any](ctx context.Context, u *url.URL, parse func(*url.URL) (C, error), open func(context.Context, C) (P, error)) (T, error) {
	return Opened[T](func(ctx context.Context, u *url.URL) (none P, err error) {
		config, err := parse(u)
		if err != nil {
			return none, err
		}
		return open(ctx, config)
	})(ctx, u)
}

// Checker returns what is wrong with a URL, without opening anything.
type Checker func(u *url.URL) error

// Parsed checks a URL by parsing it.
func Parsed[C any](parse func(*url.URL) (C, error)) func(*url.URL) error {
	return func(u *url.URL) error {
		_, err := parse(u)
		return err
	}
}

// Mux maps schemes to openers.
type Mux[T any] struct {
	mu        sync.RWMutex
	openers   map[string]Opener[T]
	checkers  map[string]Checker
	exposures map[string]Checker
}

// Handle registers an opener; it panics if the scheme is taken.
func (m *Mux[T]) Handle(pkg, scheme string, o Opener[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.openers == nil {
		m.openers = make(map[string]Opener[T])
	}
	if _, taken := m.openers[scheme]; taken {
		panic(fmt.Sprintf("%s: scheme %q is registered twice", pkg, scheme))
	}
	m.openers[scheme] = o
}

// HandleCheck registers a checker; it panics if the scheme has one.
func (m *Mux[T]) HandleCheck(pkg, scheme string, c Checker) {
	m.register(&m.checkers, "check", pkg, scheme, c)
}

// HandleExposure registers the check of how a password is exposed; it panics if the scheme
// has one.
func (m *Mux[T]) HandleExposure(pkg, scheme string, c Checker) {
	m.register(&m.exposures, "exposure", pkg, scheme, c)
}

func (m *Mux[T]) register(into *map[string]Checker, what, pkg, scheme string, c Checker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *into == nil {
		*into = make(map[string]Checker)
	}
	if _, taken := (*into)[scheme]; taken {
		panic(fmt.Sprintf("%s: the %s of scheme %q is registered twice", pkg, what, scheme))
	}
	(*into)[scheme] = c
}

// Schemes returns the registered schemes in alphabetical order.
func (m *Mux[T]) Schemes() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	schemes := make([]string, 0, len(m.openers))
	for scheme := range m.openers {
		schemes = append(schemes, scheme)
	}
	slices.Sort(schemes)
	return schemes
}

// Open opens rawURL. Its errors never repeat the URL's user info or query, which may have
// secrets.
func (m *Mux[T]) Open(ctx context.Context, pkg, rawURL string) (T, error) {
	var none T
	u, open, err := m.find(pkg, rawURL)
	if err != nil {
		return none, err
	}
	opened, err := open(ctx, u)
	if err != nil {
		return none, err // opened may be a nil pointer, which is no nil interface
	}
	return opened, nil
}

// Check returns what is wrong with rawURL without opening it, if its scheme has a checker.
// Its errors repeat no secrets either.
func (m *Mux[T]) Check(pkg, rawURL string) error {
	return m.ask(&m.checkers, pkg, rawURL)
}

// Exposure returns how a password of rawURL is exposed, if its scheme has a check. Its
// errors repeat no secrets either.
func (m *Mux[T]) Exposure(pkg, rawURL string) error { return m.ask(&m.exposures, pkg, rawURL) }

func (m *Mux[T]) ask(of *map[string]Checker, pkg, rawURL string) error {
	u, _, err := m.find(pkg, rawURL)
	if err != nil {
		return err
	}
	m.mu.RLock()
	check := (*of)[u.Scheme]
	m.mu.RUnlock()
	if check == nil {
		return nil
	}
	return check(u)
}

func (m *Mux[T]) find(pkg, rawURL string) (*url.URL, Opener[T], error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The parser's errors quote its input: of a password with an unescaped '/' or
		// '#' they take the first part for a port and repeat it.
		return nil, nil, fmt.Errorf("%s: the URL cannot be parsed: %s", pkg, FixUnparsed)
	}
	m.mu.RLock()
	open := m.openers[u.Scheme]
	m.mu.RUnlock()
	if open == nil {
		known := strings.Join(m.Schemes(), ", ")
		if known == "" {
			known = "none"
		}
		return nil, nil, fmt.Errorf("%s: no adapter for scheme %q: import its package, for example _ %q (known: %s)",
			pkg, u.Scheme, "github.com/millpond-go/millpond/"+pkg+"/…", known)
	}
	return u, open, nil
}
