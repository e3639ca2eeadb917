package middleware

import "runtime"

// growStack makes the stack of a goroutine as large as a delivery needs it. The router
// starts a goroutine for each message, whose stack would else be doubled, and all that is
// on it copied, three times on the way down to the database. It is enough to enter a
// function that has so much on its stack: fill would clear it, too.
//
//go:noinline
func growStack(fill bool) {
	if fill {
		var needed [8 << 10]byte
		runtime.KeepAlive(&needed)
	}
}
