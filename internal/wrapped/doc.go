// Package wrapped puts subscribers and publishers of Watermill's own libraries behind the
// contract of package brokers, for the official packages, on the hand-out of the other
// adapters: one slot for each message in flight, a copy of it for each handler, and no wait
// without end for a library whose server does not answer. What an ack means, and what is
// known of a delivery, is the adapter's.
package wrapped

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// leaveTimeout bounds how long Close waits for a library: some wait for an answer of the
// server without end.
const leaveTimeout = 5 * time.Second

// leave closes what is a library's.
func leave(closing func() error, logger watermill.LoggerAdapter) {
	closed := make(chan error, 1)
	go func() { closed <- closing() }()
	timer := time.NewTimer(leaveTimeout)
	defer timer.Stop()
	select {
	case err := <-closed:
		if err != nil {
			logger.Error("Watermill's library was not closed well", err, nil)
		}
	case <-timer.C:
		logger.Info("The server does not answer: Watermill's library is left to end by itself", nil)
	}
}
