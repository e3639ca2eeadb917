package official

import (
	"fmt"

	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
)

// Marshaler reads and writes watermill-aws's wire format, and accepts more than
// DefaultMarshalerUnmarshaler: a UUID that is not text, attributes of any type, more metadata than
// a message may have attributes, and bytes that SQS refuses. It is safe for concurrent use.
//
// A program that keeps its own watermill-aws subscribers and publishers can use it in their
// configuration. A message without a UUID keeps none; watermill-aws's default uses SQS's MessageId,
// of which a producer that retries creates two for one event.
type Marshaler struct{}

var (
	_ wmsqs.Marshaler   = Marshaler{}
	_ wmsqs.Unmarshaler = Marshaler{}
)

// Marshal returns a message's body and attributes. It fails if a metadata field has a name that is
// reserved for the wire format.
func (Marshaler) Marshal(msg *message.Message) (*types.Message, error) {
	body, attributes, err := wire.Encode(msg)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	return &types.Message{Body: &body, MessageAttributes: wire.ToSQS(attributes)}, nil
}

// Unmarshal returns the message as far as it can be read, and never fails: watermill-aws would
// never deliver an unreadable message.
func (Marshaler) Unmarshal(m *types.Message) (*message.Message, error) {
	msg, _ := wire.FromSQS(m)
	return msg, nil
}
