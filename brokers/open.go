package brokers

import (
	"context"
	"net/url"

	"github.com/millpond-go/millpond/internal/urlmux"
)

// An Opener opens a broker from a URL. It is handed a copy and may change it.
// Errors must not contain secrets of the URL.
type Opener func(ctx context.Context, u *url.URL) (Broker, error)

// A Checker says what is wrong with a URL without opening it: an unknown parameter, a
// file that is not there. It is handed a copy; its errors must not contain secrets.
type Checker func(u *url.URL) error

// Mux opens brokers by the scheme of a URL. The zero value is ready to use and
// knows no scheme. It is safe for concurrent use.
type Mux struct{ mux urlmux.Mux[Broker] }

// Handle registers an opener for a scheme. It panics if the scheme has one, which
// is a mistake in the program.
func (m *Mux) Handle(scheme string, o Opener) {
	m.mux.Handle("brokers", scheme, urlmux.Opener[Broker](o))
}

// HandleCheck registers what checks URLs of a scheme. It panics if the scheme has one.
func (m *Mux) HandleCheck(scheme string, c Checker) {
	m.mux.HandleCheck("brokers", scheme, urlmux.Checker(c))
}

// HandleExposure registers what says where the password of a URL can travel. It panics if
// the scheme has one.
func (m *Mux) HandleExposure(scheme string, c Checker) {
	m.mux.HandleExposure("brokers", scheme, urlmux.Checker(c))
}

// Schemes returns the registered schemes in alphabetical order.
func (m *Mux) Schemes() []string { return m.mux.Schemes() }

// Open opens the broker that rawURL names. The error for an unknown scheme lists
// the known ones and how to add more. No error repeats a password.
func (m *Mux) Open(ctx context.Context, rawURL string) (Broker, error) {
	return m.mux.Open(ctx, "brokers", rawURL)
}

// Check says what is wrong with rawURL, as far as that can be known without opening it.
// It is nil for schemes without a checker.
func (m *Mux) Check(rawURL string) error { return m.mux.Check("brokers", rawURL) }

// Exposure says that a password can travel without verified TLS to an address that is not a
// loopback, where, and what to write instead; that of rawURL, or one that the adapter takes
// from the environment. It is nil if none can, and for schemes that say nothing; it does no
// I/O. Programs that open a broker without package router may want to know.
func (m *Mux) Exposure(rawURL string) error { return m.mux.Exposure("brokers", rawURL) }

var defaultMux Mux

// DefaultMux is what [Open] uses. Adapters add themselves to it when they are
// imported; a program that prefers no global state fills a Mux of its own.
func DefaultMux() *Mux { return &defaultMux }

// Open opens the broker that rawURL names through the default mux. The adapter's
// package must be imported, if only for that:
//
//	import _ "github.com/millpond-go/millpond/brokers/memory"
func Open(ctx context.Context, rawURL string) (Broker, error) { return defaultMux.Open(ctx, rawURL) }
