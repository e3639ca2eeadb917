package middleware

import "sync/atomic"

// suspectNewcomers is how many deliveries of a consumer are suspect after a start, if
// their subscriber does not say which ones are: among them are those that were in
// flight when the process ended.
const suspectNewcomers = 256

// newcomers counts the first deliveries of a consumer in this process.
type newcomers struct{ seen atomic.Int32 }

// among reports whether this delivery is one of the first.
func (n *newcomers) among() bool {
	return n.seen.Load() < suspectNewcomers && n.seen.Add(1) <= suspectNewcomers
}
