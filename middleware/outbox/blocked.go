package outbox

import "github.com/millpond-go/millpond/stores"

// blocked has the order keys that dead letters block. The store does not return their outputs,
// and the floor passes them. So when the store returns an output of such a key, its dead letter
// is gone, and the key's outputs below the floor come first.
type blocked struct {
	keys    map[stores.OutputKey]bool // may include keys that are no longer blocked
	unknown bool                      // the store must be asked for blocked keys
}

func (b *blocked) are(keys []stores.OutputKey) {
	for _, key := range keys {
		b.keys[key] = true
	}
	b.unknown = false
}

// released returns, and removes, the keys among the outputs.
func (b *blocked) released(outputs []stores.PendingOutput) map[stores.OutputKey]bool {
	if len(b.keys) == 0 {
		return nil
	}
	gone := make(map[stores.OutputKey]bool)
	for i := range outputs {
		o := &outputs[i]
		if key := (stores.OutputKey{Destination: o.Destination, OrderKey: string(o.OrderKey)}); o.OrderKey != nil && b.keys[key] {
			gone[key] = true
			delete(b.keys, key)
		}
	}
	return gone
}
