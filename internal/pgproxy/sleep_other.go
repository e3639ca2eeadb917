//go:build !linux

package pgproxy

import "time"

func sleepPrecisely(d time.Duration) { time.Sleep(d) }
