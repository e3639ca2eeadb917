package elasticmq_test

import (
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/elasticmq"
)

// TestMissingJava: where nothing can be installed, the error says how to get it.
func TestMissingJava(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := elasticmq.Install(t.Context())
	for _, says := range []string{"elasticmq: java is missing: install Java 17 or later and Maven", "MILLPOND_TEST_SQS_ENDPOINT"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
}
