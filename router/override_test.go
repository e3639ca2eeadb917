package router_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// What a URL says in a parameter about the server, the database or the tables is a place
// like another one.
func TestVariableThatNamesAnotherPlaceInAParameterIsWarnedOf(t *testing.T) {
	for parameter, warned := range map[string]bool{
		"host=other": true, "dbname=other": true, "millpond_schema=other": true, "prefix=other_": true, "region=eu-west-1": true,
		"millpond_prefix=other_": true, "database=other": true, "port=5433": true, "endpoint=http%3A%2F%2Fh": true,
		"pool_max_conns=30": false, "sslmode=require": false,
	} {
		t.Run(parameter, func(t *testing.T) {
			c, err := read("service: billing\nbroker: {url: 'memory://'}\nstore: {url: openly://app@db/billing}\n", "MILLPOND_STORE_URL=openly://app@db/billing?"+parameter)
			require.NoError(t, err)
			c.Program.Stores = openly(func(context.Context, *url.URL) (stores.Store, error) { return nil, errors.New("down") })
			said := false
			for _, w := range c.Warnings() {
				said = said || w.Where == "MILLPOND_STORE_URL" && strings.Contains(w.Text, "overrides")
			}
			require.Equal(t, warned, said)
		})
	}
}
