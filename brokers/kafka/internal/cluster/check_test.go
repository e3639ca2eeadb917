package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

func TestCheckNamesEveryField(t *testing.T) {
	check := &cluster.Check{Package: "kafka"}
	check.Access(cluster.Access{Brokers: []string{"a:"}, Username: "shop"})
	check.Access(cluster.Access{SASL: "kerberos"})
	cluster.NotNegative(check, map[string]int{"Consume.B": -1, "Consume.A": -2, "Consume.C": 0})
	cluster.NotNegative(check, map[string]time.Duration{"ConnectTimeout": -time.Second})
	err := check.Err()
	for _, says := range []string{
		`Config.Brokers is ["a:"]`, "Brokers is empty", `Config.Username is "shop"`, `Config.SASL is "kerberos"`, "Config.ConnectTimeout is -1s", "Config.Consume.A is -2",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
	if text := fmt.Sprint(err); strings.Index(text, "Consume.A") > strings.Index(text, "Consume.B") || strings.Contains(text, "Consume.C") {
		t.Error(text)
	}
	if err := (&cluster.Check{}).Err(); err != nil {
		t.Error(err)
	}
}
