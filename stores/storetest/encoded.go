package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// encodedDifferently: a codec that encrypts takes a new nonce each time. A message without
// an id that the broker delivers again and again is one message all the same.
func encodedDifferently(b *bench) {
	var nonce atomic.Int64
	in := b.service(b.open(), func(c *middleware.InboxConfig) {
		c.Fingerprint.Key = stores.NewFingerprintKey(1, []byte("secret"))
		c.Keep.Codec = &middleware.Codec{
			Name: "seal",
			Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
				return middleware.Kept{Payload: slices.Concat(fmt.Append(nil, nonce.Add(1), ":"), k.Payload)}, nil
			},
			Decode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil },
		}
	})
	deliver := func(payload string, times int) {
		for range times {
			if a := b.deliver(in.Middleware(b.effect("without an id")), message.NewMessage("", []byte(payload))); !a.acked {
				b.tb.Errorf("a message without an id was not acked: %v", a.err)
			}
		}
	}
	deliver("payload", 3)
	deliver("another payload", 1)
	kept := b.quarantined()
	if len(kept) != 2 || kept[0].Seen != 3 || string(kept[0].Payload) != "1:payload" || kept[1].Seen != 1 {
		b.tb.Errorf("two messages, of which one was delivered 3 times, are in quarantine as %+v", kept)
	}
}
