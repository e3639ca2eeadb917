package middleware

import "runtime"

// growStack makes the goroutine's stack as large as a delivery needs. The router starts a
// goroutine for each message; without growStack its stack would be doubled and copied three times
// on the way down to the database. Entering a function with a frame this large is enough; fill
// would clear the frame, too.
//
//go:noinline
func growStack(fill bool) {
	if fill {
		var needed [8 << 10]byte
		runtime.KeepAlive(&needed)
	}
}
