package urlquery_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/millpond-go/millpond/internal/urlquery"
)

func TestStray(t *testing.T) {
	for raw, stray := range map[string]bool{
		"x://app:31#more@host/db":                     true,
		"x://app:31/more@host/db":                     true,
		"x://app:31?more@host/db":                     true,
		"x://host/#more":                              true,
		"x://host/?password=a@b":                      true, // nobody can tell
		"x://app:p%23%2F%3F%40@host/db?password=a%40": false,
		"x://app:p@ss@host/db":                        false,
		"x://host/a%40b":                              false,
		"x:///dir/a@b.db":                             false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := urlquery.Stray(u); errors.Is(err, urlquery.ErrStray) != stray {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
