package brokers

import (
	"context"
	"net/url"

	"github.com/millpond-go/millpond/internal/urlmux"
)

// An Opener opens a broker from a URL. It gets a copy, which it may change. Its errors must not
// contain secrets from the URL.
type Opener func(ctx context.Context, u *url.URL) (Broker, error)

// A Checker reports errors in a URL, such as an unknown parameter or a missing file, without
// opening it. It gets a copy. Its errors must not contain secrets from the URL.
type Checker func(u *url.URL) error

// Mux opens brokers by the scheme of a URL. The zero value is ready to use and knows no scheme. It
// is safe for concurrent use.
type Mux struct{ mux urlmux.Mux[Broker] }

// Handle registers the opener of a scheme. It panics if the scheme already has one.
func (m *Mux) Handle(scheme string, o Opener) {
	m.mux.Handle("brokers", scheme, urlmux.Opener[Broker](o))
}

// HandleCheck registers the checker of a scheme. It panics if the scheme already has one.
func (m *Mux) HandleCheck(scheme string, c Checker) {
	m.mux.HandleCheck("brokers", scheme, urlmux.Checker(c))
}

// HandleExposure registers the checker of a scheme that [Mux.Exposure] calls. It panics if the
// scheme already has one.
func (m *Mux) HandleExposure(scheme string, c Checker) {
	m.mux.HandleExposure("brokers", scheme, urlmux.Checker(c))
}

// Schemes returns the registered schemes in alphabetical order.
func (m *Mux) Schemes() []string { return m.mux.Schemes() }

// Open opens the broker that rawURL names. The error for an unknown scheme lists the known ones and
// how to add more. No error repeats a password.
func (m *Mux) Open(ctx context.Context, rawURL string) (Broker, error) {
	return m.mux.Open(ctx, "brokers", rawURL)
}

// Check reports errors in rawURL that can be found without opening it. It returns nil for schemes
// without a checker.
func (m *Mux) Check(rawURL string) error { return m.mux.Check("brokers", rawURL) }

// Exposure returns an error if a password, from rawURL or the environment, could travel without
// verified TLS to an address that is not a loopback. The error names the address and the fix. It
// returns nil for schemes without such a checker, and does no I/O. Package router calls it;
// programs that open a broker themselves should too.
func (m *Mux) Exposure(rawURL string) error { return m.mux.Exposure("brokers", rawURL) }

var defaultMux Mux

// DefaultMux returns the mux of [Open]. Adapters add themselves to it when they are imported. A
// program without global state fills its own Mux.
func DefaultMux() *Mux { return &defaultMux }

// Open opens the broker that rawURL names through the default mux. The adapter's package must be
// imported, if only for that:
//
//	import _ "github.com/millpond-go/millpond/brokers/memory"
func Open(ctx context.Context, rawURL string) (Broker, error) { return defaultMux.Open(ctx, rawURL) }
