package official_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestFunctionsThatPanic: a message that the program's own function cannot read is
// delivered as one that nobody can read, and the next one comes.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	b := opened(t, s, func(c *sqs.Config) {
		c.Consume.Unmarshal = func(m *types.Message) (*message.Message, error) {
			if testenv.Misread([]byte(aws.ToString(m.Body))) {
				return nil, nil //nolint:nilnil // which is what it must not do
			}
			return message.NewMessage("well", nil), nil
		}
	})
	topic := s.QueueName(t, "")
	_, messages := subscribe(t, b, brokers.SubscriberConfig{Group: "group", Logger: testenv.PanickingLogger{}}, topic)
	for _, payload := range append(testenv.Misreads(), "well") {
		publish(t, b, topic, message.NewMessage("", []byte(payload)))
		msg, d := receive(t, messages)
		if (d.Undecodable == nil) != (payload == "well") || (msg.UUID == "well") != (payload == "well") {
			t.Errorf("%s: %q, %v", payload, msg.Payload, d.Undecodable)
		}
		msg.Ack()
	}
}
