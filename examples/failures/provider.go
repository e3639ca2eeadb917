package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// provider stands for the payment provider: mostly it answers, as others do.
type provider struct {
	mu     sync.Mutex
	silent map[string]int // how many more questions about an order it does not answer
}

var errDeclined = errors.New("the card is declined")

// patience is how long an answer of the provider is waited for.
const patience = 20 * time.Millisecond

// authorise asks whether the card of an order is good.
func (p *provider) authorise(ctx context.Context, o order) error {
	if p.answers(o.OrderID) {
		if o.Card == declinedCard {
			return fmt.Errorf("payment of %s: %w", o.OrderID, errDeclined)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("payment of %s: no answer from the provider within %s: %w", o.OrderID, patience, ctx.Err())
}

func (p *provider) answers(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent[id] == 0 {
		return true
	}
	p.silent[id]--
	return false
}
