package router_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

// openly is a mux of stores whose URLs all have passwords that can travel.
func openly(open stores.Opener) *stores.Mux {
	mux := new(stores.Mux)
	mux.Handle("openly", open)
	mux.HandleExposure("openly", func(u *url.URL) error { // which says too much
		password, _ := u.User.Password()
		return errors.New("the password can travel to " + u.Host + " as " + password)
	})
	return mux
}

// A service says at its start where a password can travel, before it does, or does not start.
func TestPasswordThatCanTravelIsAWarningAtTheStart(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Store.URL = router.NewURL("openly://app:" + canary + "@db")
	said := false
	c.Program.Stores = openly(func(context.Context, *url.URL) (stores.Store, error) {
		said = true
		require.Contains(t, r.log.String(), "the password can travel to db as …")
		return nil, errors.New("no more than that")
	})
	_, err := router.New(t.Context(), c)
	require.ErrorContains(t, err, "no more than that")
	require.True(t, said)
	require.Contains(t, r.log.String(), `level=WARN msg="millpond: the configuration may not be what is meant" field=store.url`)
	require.NotContains(t, r.log.String(), canary)

	said, c.RequireTLS = false, true
	_, err = router.New(t.Context(), c)
	require.EqualError(t, err, "router: store.url is openly://…@db, and require_tls is true: the password can travel to db as …")
	require.False(t, said, "it was opened")
}

// What a variable says is not taken for what the file says, in the log and in errors.
func TestVariableThatCountsMoreThanTheFileIsNamed(t *testing.T) {
	const file = "service: billing\nbroker: {url: 'lasting://'}\nstore:\n  url: openly://app@db/billing\ndrain_timeout: 1s\n"
	r := newRig(t)
	start := func(environ ...string) error {
		c, err := read(file, environ...)
		require.NoError(t, err)
		c.Program = r.config().Program
		c.Program.Stores = openly(func(context.Context, *url.URL) (stores.Store, error) { return nil, errors.New("down") })
		_, err = router.New(t.Context(), c)
		return err
	}
	require.EqualError(t, start(), "router: store.url openly://…@db/billing: down")
	require.NotContains(t, r.log.String(), "overrides")
	require.EqualError(t, start("MILLPOND_STORE_URL=openly://app:"+canary+"@other/tool"), "router: store.url (MILLPOND_STORE_URL) openly://…@other/tool: down")
	require.Contains(t, r.log.String(), "where=MILLPOND_STORE_URL warning=\"is openly://…@other/tool, which overrides the openly://…@db/billing of millpond.yaml:4: unset the variable if the file is right\"")
	require.NotContains(t, r.log.String(), canary)

	c, err := read(file, "MILLPOND_STORE_URL=openly://app:"+canary+"@db/billing", "MILLPOND_DRAIN_TIMEOUT=2s")
	require.NoError(t, err)
	require.Equal(t, "MILLPOND_STORE_URL", c.Origin("store.url"))
	require.Equal(t, "MILLPOND_DRAIN_TIMEOUT", c.Origin("drain_timeout"))
	require.Equal(t, "millpond.yaml:1", c.Origin("service"))
	require.Empty(t, c.Origin("inbox.keys"), "a default")
	c.Service = "of the program"
	require.Empty(t, c.Origin("service"))
	c.Program.Stores = openly(nil)
	for _, w := range c.Warnings() {
		require.NotContains(t, w.String(), "overrides", "a password for the same place")
	}
	require.Empty(t, new(router.Config).Origin("service"))
}
