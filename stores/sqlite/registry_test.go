package sqlite

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestRegister(t *testing.T) {
	o := open(t) // registers billing for orders
	register := func(topic string, accept bool) error {
		return o.Register(t.Context(), stores.Registration{Consumer: billing, Topic: topic, AcceptTopic: accept})
	}
	require.NoError(t, register("orders", false))
	require.NoError(t, register("", false))
	err := register("refunds", false)
	require.ErrorIs(t, err, stores.ErrConsumerConflict)
	for _, part := range []string{"billing/charge", `"orders"`, `"refunds"`, "AcceptTopics"} {
		require.ErrorContains(t, err, part)
	}
	require.NoError(t, register("refunds", true))
	require.NoError(t, register("refunds", false), "accepted for good")
	require.NoError(t, register("orders", false))
	require.ErrorIs(t, register("Orders", false), stores.ErrConsumerConflict)

	var rows int
	var topics string
	require.NoError(t, o.DB().QueryRow("SELECT count(*), max(topics) FROM millpond_consumer").Scan(&rows, &topics))
	require.Equal(t, 1, rows)
	require.JSONEq(t, `["orders","refunds"]`, topics)
}

func TestRegisterWithoutTopicFirst(t *testing.T) {
	o := open(t)
	c := stores.Consumer{Service: "s", Handler: "h/with/slashes"}
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: c}))
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: c, Topic: "a"}), "the first topic that is known")
	require.ErrorIs(t, o.Register(t.Context(), stores.Registration{Consumer: c, Topic: "b"}), stores.ErrConsumerConflict)
}

func TestRegisterInvalidNames(t *testing.T) {
	o := open(t)
	for _, c := range []stores.Consumer{{}, {Service: "s"}, {Handler: "h"}, {Service: "a/b", Handler: "h"}, {Service: "s", Handler: "\xff"}, {Service: "s", Handler: "a\nb"}} {
		require.ErrorIs(t, o.Register(t.Context(), stores.Registration{Consumer: c}), stores.ErrInvalidKey)
	}
}

// Names are data.
func TestRegisterHostileNames(t *testing.T) {
	o := open(t)
	for _, name := range []string{`'; DROP TABLE millpond_inbox; --`, `"`, "ä", "a", "A"} {
		c := stores.Consumer{Service: name, Handler: name}
		require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: c, Topic: name}))
		claim := claimOf("a")
		claim.Key.Consumer = c
		o.complete(claim)
	}
	o.requireCounts(5, 5)
}

func TestRegisterAtOnce(t *testing.T) {
	o := open(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			c := stores.Consumer{Service: "s", Handler: fmt.Sprint(i % 4)}
			if err := o.Register(t.Context(), stores.Registration{Consumer: c, Topic: "t"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var rows, ids int
	require.NoError(t, o.DB().QueryRow("SELECT count(*), count(DISTINCT id) FROM millpond_consumer WHERE service = 's'").Scan(&rows, &ids))
	require.Equal(t, []int{4, 4}, []int{rows, ids})
}
