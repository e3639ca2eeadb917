package official_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestMarshalerInWatermillAWS: with the default this subscriber ends the program.
func TestMarshalerInWatermillAWS(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	queue := s.NewQueue(t, nil)
	send(t, s, queue, map[string]types.MessageAttributeValue{
		wmsqs.UUIDAttribute: {DataType: aws.String("Binary"), BinaryValue: []byte("bytes")},
	}, []byte("foreign"))
	subscriber, err := wmsqs.NewSubscriber(wmsqs.SubscriberConfig{AWSConfig: s.Config(t), Unmarshaler: official.Marshaler{}}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(context.Background(), queue)
	if err != nil {
		t.Fatal(err)
	}
	if msg, _ := receive(t, messages); msg.UUID != "bytes" || string(msg.Payload) != "foreign" {
		t.Errorf("the message is %q, %q", msg.UUID, msg.Payload)
	} else {
		msg.Ack()
	}

	publisher, err := wmsqs.NewPublisher(wmsqs.PublisherConfig{AWSConfig: s.Config(t), Marshaler: official.Marshaler{}}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	sent := message.NewMessage(watermill.NewUUID(), []byte{0, 1})
	sent.Metadata.Set("a name with spaces", "")
	if err := publisher.Publish(queue, sent); err != nil {
		t.Fatal(err)
	}
	if msg, _ := receive(t, messages); !msg.Equals(sent) {
		t.Errorf("the message is %q, %v, %q", msg.UUID, msg.Metadata, msg.Payload)
	} else {
		msg.Ack()
	}
	sent.Metadata.Set(wmsqs.UUIDAttribute, "another")
	if err := publisher.Publish(queue, sent); err == nil {
		t.Error("a reserved metadata field was taken")
	}
}
