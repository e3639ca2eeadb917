package clients

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// Deposit is what a message says: so much goes to that account.
type Deposit struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

// decode reads a message. One that cannot be read will not be readable later either.
func decode(msg *message.Message) (Deposit, error) {
	var d Deposit
	if err := json.Unmarshal(msg.Payload, &d); err != nil {
		return d, middleware.Permanent(fmt.Errorf("decode a deposit: %w", err))
	}
	return d, nil
}
