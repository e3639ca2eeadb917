package pgurl_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/stores/postgres/internal/pgurl"
)

func TestURLsOfAnotherFormAreRefused(t *testing.T) {
	t.Parallel()
	for address, says := range map[string]string{
		"": "the URL is empty",
		"host=127.0.0.1 user=user password=canary dbname=db": "does not begin with postgres://",
		"postgress://user:canary@host/db":                    "does not begin with postgres://",
		"user:canary@host/db":                                "does not begin with postgres://",
		"host/db":                                            "does not begin with postgres://",
	} {
		u, err := url.Parse(address)
		if err != nil {
			continue // refused before
		}
		_, err = pgurl.Parse(u)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
