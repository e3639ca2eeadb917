package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	orderCount   = 60
	openingStock = 1000
)

var articles = []string{"bench", "chair", "desk", "lamp"}

// What is special about some orders.
func sentTwice(n int) bool  { return n%6 == 0 || n == 17 }
func hardToFind(n int) bool { return n%12 == 5 } // 17 is one of them
func unreadable(n int) bool { return n == 42 }   // and sent twice

// orders are what the shop sends, always the same.
func orders() []order {
	list := make([]order, orderCount)
	for i := range list {
		n := i + 1
		list[i] = order{ID: fmt.Sprintf("order-%02d", n), Article: articles[n%len(articles)], Quantity: int64(1 + n%3)}
	}
	return list
}

// copyField is the metadata field that tells a message from its duplicate. The inbox does
// not look at it.
const copyField = "copy"

// messages are the orders as they are published. The duplicates come last, as from a
// producer that repeats what it believes to be lost.
func messages(list []order) ([]*message.Message, error) {
	var first, again []*message.Message
	for i, o := range list {
		payload, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		if unreadable(i + 1) {
			payload = []byte("{" + o.ID) // cut off
		}
		for n := range 2 {
			msg := message.NewMessage(o.ID, payload)
			msg.Metadata.Set(copyField, strconv.Itoa(n))
			if n == 0 {
				first = append(first, msg)
			} else if sentTwice(i + 1) {
				again = append(again, msg)
			}
		}
	}
	return append(first, again...), nil
}

// shelves are where articles are looked for. Some are found only when they are looked for
// the third time.
type shelves struct {
	mu     sync.Mutex
	hidden map[string]int // order → how often it is not found
}

func newShelves(list []order) *shelves {
	s := &shelves{hidden: make(map[string]int)}
	for i, o := range list {
		if hardToFind(i + 1) {
			s.hidden[o.ID] = 2
		}
	}
	return s
}

var errNotFound = errors.New("the article is not where it should be")

func (s *shelves) find(o order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hidden[o.ID] == 0 {
		return nil
	}
	s.hidden[o.ID]--
	return errNotFound
}
