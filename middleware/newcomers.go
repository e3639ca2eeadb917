package middleware

import (
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// suspectNewcomers is how many deliveries of a consumer are suspect after a start, if
// their subscriber does not say which ones are: among them are those that were in
// flight when the process ended.
const suspectNewcomers = 256

// newcomers counts the first deliveries of each consumer in this process.
type newcomers struct{ seen sync.Map } // stores.Consumer → *atomic.Int32

func newNewcomers() *newcomers { return new(newcomers) }

// among reports whether this delivery is one of the first.
func (n *newcomers) among(c stores.Consumer) bool {
	counter, ok := n.seen.Load(c)
	if !ok {
		counter, _ = n.seen.LoadOrStore(c, new(atomic.Int32))
	}
	count, _ := counter.(*atomic.Int32)
	return count.Load() < suspectNewcomers && count.Add(1) <= suspectNewcomers
}
