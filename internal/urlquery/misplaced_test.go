package urlquery_test

import (
	"net/url"
	"slices"
	"testing"

	"github.com/millpond-go/millpond/internal/urlquery"
)

func TestMisplaced(t *testing.T) {
	query := url.Values{"theirs": {"s3cret"}, "ours": {"1"}, "nobodys": {"2"}}
	got := urlquery.Misplaced(query, map[string]string{"theirs": "ours", "nobodys": "", "absent": "ours"})
	want := []string{`parameter "nobodys" is for other URLs: remove it`, `parameter "theirs" is for other URLs: did you mean ours?`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
