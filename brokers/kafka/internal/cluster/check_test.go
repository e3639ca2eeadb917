package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

func TestCheckNamesEveryField(t *testing.T) {
	var found []string
	wrong := func(field string, value any, _ string) { found = append(found, fmt.Sprintf("%s is %v", field, value)) }
	(&cluster.Access{Brokers: []string{"a:"}, Username: "shop"}).Check(wrong)
	(&cluster.Access{SASL: "plain", Username: "shop"}).Check(wrong)
	(&cluster.Access{Brokers: []string{"a", "b:1"}}).Check(wrong)
	if got := strings.Join(found, "; "); got != `Brokers is ["a:"]; Username is "shop"; Brokers is empty` {
		t.Error(got)
	}
}
