package mysql

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestServersThatAreTooOldAreRefused(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		maria bool
		use   string
	}{
		"8.0.36":                         {},
		"9.7.4-2":                        {},
		"8.4.0-commercial":               {},
		"10.11.19-MariaDB-0+deb12u1":     {maria: true},
		"5.5.5-10.6.12-MariaDB-log":      {maria: true},
		"11.8.9-MariaDB":                 {maria: true},
		"5.7.44-log":                     {use: "8.0 or later"},
		"10.5.9-MariaDB":                 {maria: true, use: "10.6 or later"},
		"5.5.5-10.3.39-MariaDB-0+deb10u": {maria: true, use: "10.6 or later"},
		"Some other server":              {},
	} {
		maria, err := supported(version)
		assert.Equal(t, want.maria, maria, version)
		if want.use == "" {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorContains(t, err, want.use, version)
		require.NotErrorIs(t, unavailable(err), stores.ErrUnavailable, version)
	}
}
