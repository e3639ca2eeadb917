package router

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
)

func TestBatchOfAHandler(t *testing.T) {
	t.Parallel()
	read := func(file string) (Config, error) {
		return ReadConfig(fstest.MapFS{"f": {Data: []byte("service: shop\nbroker: {url: 'memory://'}\nstore: {url: 'sqlite://a.db'}\n" + file)}}, "f", nil)
	}
	c, err := read("handlers: {stock: {batch: {on: true, size: 8}}, mail: {batch: {size: 8}}}")
	require.NoError(t, err)
	require.Equal(t, map[string]middleware.BatchConfig{"stock": {Size: 8, From: 16, Time: 200 * time.Millisecond}}, c.inboxConfig(nil).BatchByHandler)
	for file, want := range map[string]string{
		"handlers: {stock: {batch: {on: true, size: 33}}}":          "use at most 32",
		"handlers: {stock: {batch: {on: true, time: 1m}}}":          "HandlerTimeout is 30s",
		"handlers: {stock: {batch: {on: true}, lease: {on: true}}}": "a handler under a lease has no transaction",
		"handlers: {stock: {batch: {on: true, size: -1}}}":          "size",
	} {
		_, err := read(file)
		require.ErrorContains(t, err, want, file)
	}
}
