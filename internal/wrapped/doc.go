// Package wrapped puts subscribers and publishers of Watermill's own libraries behind the
// contract of package brokers, for the official packages, on the hand-out of the other
// adapters: each message in flight has a slot, each handler gets a copy, and no wait for a
// library is unbounded. The adapters decide what an ack means and which facts a delivery
// has.
package wrapped

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// leaveTimeout bounds how long Close waits for a library: some wait for the server for
// ever.
const leaveTimeout = 5 * time.Second

// leave closes a part of a library.
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
