package cluster_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

func TestReadURL(t *testing.T) {
	for rawURL, want := range map[string]struct {
		brokers []string
		says    []string
	}{
		"kafka://a:1,b:2/?x=y":     {brokers: []string{"a:1", "b:2"}},
		"kafka://":                 {says: []string{"names no broker: write kafka://host"}},
		"kafka://u:s3cret@a/topic": {brokers: []string{"a"}, says: []string{"names a user", "names a path"}},
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		got, errs := cluster.ReadURL("kafka", u)
		if !slices.Equal(got, want.brokers) || len(errs) != len(want.says) {
			t.Errorf("%s: %q, %v", rawURL, got, errs)
			continue
		}
		for i, says := range want.says {
			if text := errs[i].Error(); !strings.Contains(text, says) || strings.Contains(text, "s3cret") {
				t.Errorf("%s: %v", rawURL, errs[i])
			}
		}
	}
	if got := cluster.WithPorts([]string{"a", "b:1", "::1", "[::1]"}); !slices.Equal(got, []string{"a:9092", "b:1", "[::1]:9092", "[::1]:9092"}) {
		t.Errorf("%q", got)
	}
}
