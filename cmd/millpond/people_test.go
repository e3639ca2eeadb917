package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// A message that is due in less than a second, by a clock that is not exact, waits for its broker.
func TestNextOfARedeliveredMessage(t *testing.T) {
	t.Parallel()
	next := func(d time.Duration) string {
		var m stores.Message
		m.Status, m.Placement, m.DueIn = stores.StatusPending, stores.PlacementRedelivered, d
		return (&program{}).messageCells(m)[slices.Index(messageColumns.titles(), "NEXT")]
	}
	require.Equal(t, "now", dueIn(shownAsNow-1))
	require.NotEqual(t, "now", dueIn(shownAsNow))
	for _, d := range []time.Duration{-time.Hour, 0, shownAsNow - 1} {
		require.Equal(t, "on redelivery", next(d), d)
	}
	require.Equal(t, dueIn(time.Hour), next(time.Hour))
}
