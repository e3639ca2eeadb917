package dynamodb

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// In two regions of a global table one message could be completed twice.
func TestGlobalTablesAreRefused(t *testing.T) {
	b := newBench(t)
	b.then("DescribeTable", says(http.StatusOK, `{"Table":{"TableName":"t","Replicas":[{"RegionName":"eu-west-1"}]}}`))
	err := b.Register(t.Context(), stores.Registration{Consumer: stores.Consumer{Service: "dynamodb", Handler: "global"}})
	require.ErrorContains(t, err, "is a global table")
	require.ErrorContains(t, err, "use a table in one region")
}
