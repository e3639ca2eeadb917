package main

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	topic        = "orders"
	declinedCard = "expired-card"
)

// shop sends orders.
type shop struct {
	publisher message.Publisher
	sent      []order // each once, those under a used id excepted
}

// orderCount is how many the shop sends at first.
const orderCount = 60

func orderID(n int) string { return fmt.Sprintf("order-%04d", n) }
func account(n int) string { return fmt.Sprintf("customer-%02d", n) }

// timeouts are the orders about which the provider does not answer at first, and how
// often.
func timeouts() map[string]int {
	silent := make(map[string]int)
	for n := 3; n <= orderCount; n += 12 {
		silent[orderID(n)] = 2
	}
	return silent
}

// orders are what the shop sends at first: most of them are charged at once.
func orders() []order {
	list := make([]order, orderCount)
	for i := range list {
		n := i + 1
		o := order{OrderID: orderID(n), Account: account(n), Cents: int64(1000 + 10*n), Card: "card", Instalments: 1}
		switch {
		case n == 10, n == 30, n == 50:
			o.Card = declinedCard
		case n%12 == 7:
			o.Instalments = 0 // on invoice
		case n == 23, n == 45:
			o.Account = account(n - 1) // two orders of one customer
		}
		list[i] = o
	}
	return list
}

// send publishes orders, and every tenth of them twice.
func (s *shop) send(orders ...order) error {
	for i, o := range orders {
		s.sent = append(s.sent, o)
		if err := s.publish(o); err != nil {
			return err
		}
		if (i+1)%10 == 0 {
			if err := s.publish(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendUnderUsedID publishes another order under an id that is taken.
func (s *shop) sendUnderUsedID(id string, o order) error {
	o.OrderID = id
	return s.publish(o)
}

func (s *shop) publish(o order) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.publisher.Publish(topic, message.NewMessage(o.OrderID, payload))
}
