package cluster

import (
	"net/url"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/urlmux"
)

// Register adds a scheme to the default mux. parse returns how a URL reaches the cluster, or what
// is wrong with it.
func Register(scheme string, open brokers.Opener, parse func(*url.URL) (Access, error)) {
	brokers.DefaultMux().Handle(scheme, open)
	brokers.DefaultMux().HandleCheck(scheme, urlmux.Parsed(parse))
	brokers.DefaultMux().HandleExposure(scheme, func(u *url.URL) error {
		access, err := parse(u)
		if err != nil {
			return err
		}
		return access.Exposure()
	})
}
