package outbox

import "github.com/millpond-go/millpond/stores"

// blocked are order keys that dead letters block. The store leaves out what they have, and
// the floor passes it by. So when the store returns something of such a key, its dead letter
// is gone, and what there is below the floor has its turn first.
type blocked struct {
	keys    map[stores.OutputKey]bool // among them some that are blocked no longer
	unknown bool                      // what the store knows of is to be asked for
}

func (b *blocked) are(keys []stores.OutputKey) {
	for _, key := range keys {
		b.keys[key] = true
	}
	b.unknown = false
}

// released returns, and forgets, those of which there are outputs.
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
