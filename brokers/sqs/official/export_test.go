package official

import (
	"errors"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Wires cuts off subscribers, which then are as good as dead.
type Wires struct {
	mu   sync.Mutex
	dead map[*Subscriber]bool
}

// Tap lets the requests of all subscribers of b pass through the wires.
func Tap(b *Broker) *Wires {
	w := &Wires{dead: make(map[*Subscriber]bool)}
	b.options = func(s *Subscriber) []func(*awssqs.Options) {
		return []func(*awssqs.Options){func(o *awssqs.Options) { o.HTTPClient = &cuttable{w, s, o.HTTPClient} }}
	}
	return w
}

// Cut lets nothing of a subscriber pass, from now on.
func (w *Wires) Cut(s *Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[s] = true
}

type cuttable struct {
	wires      *Wires
	subscriber *Subscriber
	client     aws.HTTPClient
}

var errCut = errors.New("the wire was cut")

func (c *cuttable) Do(r *http.Request) (*http.Response, error) {
	c.wires.mu.Lock()
	dead := c.wires.dead[c.subscriber]
	c.wires.mu.Unlock()
	if dead {
		return nil, errCut
	}
	return c.client.Do(r)
}
