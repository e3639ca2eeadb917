package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

// A password with a character that ends the host of a URL: what is left of it is neither shown
// nor asked for by name, on any adapter.
func TestPasswordsThatWereNotEncodedAreNeitherShownNorLookedUp(t *testing.T) {
	type mux interface {
		Schemes() []string
		Check(rawURL string) error
	}
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	opens := map[mux]func(rawURL string) error{
		stores.DefaultMux(): func(rawURL string) error {
			_, err := stores.Open(stop, rawURL)
			return err
		},
		brokers.DefaultMux(): func(rawURL string) error {
			_, err := brokers.Open(stop, rawURL)
			return err
		},
	}
	for m, open := range opens {
		for _, scheme := range m.Schemes() {
			if slices.Contains([]string{"sqlite", "memory"}, scheme) {
				continue // they have no passwords
			}
			for _, c := range []string{"#", "?", "/"} {
				for _, form := range []string{
					"%s://app:31%sc4nary@db.example/shop", "%s://31%sc4nary@db.example/shop", "%s://app:31@31%sc4nary@db.example/shop",
					"%s://app:31%sc4nary=1&user=x@db.example/shop", "%s://app:%s31c4nary@db.example/shop",
				} {
					rawURL := fmt.Sprintf(form, scheme, c)
					for what, err := range map[string]error{"Check": m.Check(rawURL), "Open": open(rawURL)} {
						require.ErrorContains(t, err, "percent-encode special characters in a password", "%s of %s", what, rawURL)
						require.NotContains(t, err.Error(), "31", "%s of %s", what, rawURL)
						require.NotContains(t, err.Error(), "c4nary", "%s of %s", what, rawURL)
					}
					shown := router.NewURL(rawURL).String()
					require.NotContains(t, shown, "31", rawURL)
					require.NotContains(t, shown, "c4nary", rawURL)
				}
			}
		}
	}
}

// The tool says no more than that, whatever it is asked for.
func TestToolShowsNothingOfPasswordsThatWereNotEncoded(t *testing.T) {
	s := newSession(t)
	for _, address := range []string{"postgres://app:31#c4nary@db.example/shop", "mysql://app:31/c4nary@db.example/shop", "postgres://app:31?c4nary@db.example/shop"} {
		for _, args := range [][]string{{"stats"}, {"migrate", "up"}, {"migrate", "sql"}, {"msg", "ls"}} {
			begun := time.Now()
			s.run(exitError, append(args, "--store", address)...)
			require.Less(t, time.Since(begun), 5*time.Second, "nobody was asked")
			for _, secret := range []string{"31", "c4nary"} {
				require.NotContains(t, s.outB.String()+s.errB.String(), secret, "%s %s", strings.Join(args, " "), address)
			}
		}
	}
}
