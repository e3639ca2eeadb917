package broker

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

const visibility = 3 * time.Second

func init() {
	kinds["sqs"] = &kind{
		start:   newSQS,
		open:    func(ctx context.Context, s setup, _ *recorder) (brokers.Broker, error) { return openSQS(ctx, s) },
		vary:    func(_ uint64, _ bool, s *setup) { s.Limit = ampleLimit },
		places:  func(setup) []place { return nil },
		absence: visibility,
		returns: true,
	}
}

func openSQS(ctx context.Context, s setup) (brokers.Broker, error) {
	return sqs.New(ctx, sqs.Config{
		Endpoint: s.Broker, Region: "elasticmq",
		Consume: sqs.Consume{
			Visibility: visibility, Wait: time.Second,
			Unmarshal: func(m *types.Message) (*message.Message, error) { return s.readOrder([]byte(aws.ToString(m.Body))) },
		},
	})
}

// sqsServer is an ElasticMQ with the queue of the service and, behind its redrive policy,
// one that nobody reads.
type sqsServer struct {
	*testenv.PrivateSQSServer

	setup setup // as a worker would have it
	asks  *client.Client
}

const deadQueue = topic + "-dead"

func newSQS(t *testing.T, s setup) server {
	t.Helper()
	server := testenv.PrivateSQS(t)
	q := &sqsServer{PrivateSQSServer: server, setup: s, asks: server.Client(t)}
	q.setup.Broker = server.Endpoint()
	dead, err := q.asks.CreateQueue(t.Context(), &client.CreateQueueInput{QueueName: aws.String(deadQueue)})
	if err != nil {
		t.Fatal(err)
	}
	arn, err := q.attribute(t.Context(), deadQueue, types.QueueAttributeNameQueueArn)
	if err != nil {
		t.Fatal(err, dead)
	}
	_, err = q.asks.CreateQueue(t.Context(), &client.CreateQueueInput{QueueName: aws.String(topic), Attributes: map[string]string{
		string(types.QueueAttributeNameVisibilityTimeout): strconv.Itoa(int(visibility.Seconds())),
		string(types.QueueAttributeNameRedrivePolicy):     fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn, s.Limit),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func (q *sqsServer) address() string { return q.Endpoint() }

func (q *sqsServer) client(ctx context.Context) (brokers.Broker, error) {
	return openSQS(ctx, q.setup)
}

// left is how many messages wait, are delayed or are handed out.
func (q *sqsServer) left(ctx context.Context) (int64, error) { return q.messages(ctx, topic) }

func (q *sqsServer) dropped(ctx context.Context) (int64, error) { return q.messages(ctx, deadQueue) }

// connected: SQS knows no consumers.
func (*sqsServer) connected(context.Context) (int, error) { return 0, nil }

func (q *sqsServer) messages(ctx context.Context, name string) (sum int64, err error) {
	for _, which := range []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
	} {
		text, err := q.attribute(ctx, name, which)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (q *sqsServer) attribute(ctx context.Context, name string, which types.QueueAttributeName) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	found, err := q.asks.GetQueueUrl(ctx, &client.GetQueueUrlInput{QueueName: aws.String(name)})
	if err != nil {
		return "", err
	}
	answer, err := q.asks.GetQueueAttributes(ctx, &client.GetQueueAttributesInput{
		QueueUrl: found.QueueUrl, AttributeNames: []types.QueueAttributeName{which},
	})
	if err != nil {
		return "", err
	}
	return answer.Attributes[string(which)], nil
}

func (q *sqsServer) describe(ctx context.Context) string {
	text := ""
	for _, name := range []string{topic, deadQueue} {
		n, err := q.messages(ctx, name)
		text += fmt.Sprintf("%s: %d messages, %v\n", name, n, err)
	}
	return text
}
