//go:build !linux

package dbproxy

import "time"

func sleepPrecisely(d time.Duration) { time.Sleep(d) }
