package testenv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/daemon"
)

func queueURL(t *testing.T, client *sqs.Client, name string) string {
	t.Helper()
	queue, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return *queue.QueueUrl
}

func send(t *testing.T, client *sqs.Client, queue, body string) {
	t.Helper()
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
}

// receive returns the bodies of some messages, at least one.
func receive(t *testing.T, client *sqs.Client, queue string) []string {
	t.Helper()
	var bodies []string
	testenv.Eventually(t, "a message is received", func() bool {
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			bodies = append(bodies, *m.Body)
		}
		return len(bodies) > 0
	})
	return bodies
}

func TestSQSIsSharedAndItsQueuesAreDeleted(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.SQS(t)
	if again := testenv.SQS(t); again.Endpoint() != server.Endpoint() {
		t.Error(server.Endpoint(), again.Endpoint())
	}
	client := server.Client(t)
	var name string
	t.Run("test", func(t *testing.T) {
		name = server.NewQueue(t, map[string]string{"FifoQueue": "true"})
		queueURL(t, client, name)
		server.QueueName(t, "") // a queue that never exists leaves nothing to delete
	})
	_, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	if _, missing := errors.AsType[*types.QueueDoesNotExist](err); !missing {
		t.Errorf("the queue of a finished test: %v", err)
	}
}

func TestPrivateSQSKeepsWhatItHasTakenWhenItIsKilled(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivateSQS(t)
	client := server.Client(t)
	queue := queueURL(t, client, server.NewQueue(t, map[string]string{"VisibilityTimeout": "7"}))
	const sent = 20
	for range sent {
		send(t, client, queue, "taken")
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); !errors.Is(err, daemon.ErrNotRunning) {
		t.Errorf("killed twice: %v", err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); !errors.Is(err, daemon.ErrRunning) {
		t.Errorf("started twice: %v", err)
	}
	got := 0
	for got < sent {
		got += len(receive(t, client, queue))
	}
	attributes, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameVisibilityTimeout},
	})
	if err != nil || attributes.Attributes["VisibilityTimeout"] != "7" {
		t.Errorf("the queue's attributes are %v (%v)", attributes, err)
	}
}

func TestPrivateSQSForgets(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivateSQS(t)
	client, name := server.Client(t), server.NewQueue(t, nil)
	send(t, client, queueURL(t, client, name), "forgotten")
	for range 2 { // from running, and from stopped
		if err := server.RestartEmpty(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
		if _, missing := errors.AsType[*types.QueueDoesNotExist](err); !missing {
			t.Fatalf("the queue after an empty start: %v", err)
		}
		if err := server.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPrivateSQSHangs(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivateSQS(t)
	client := server.Client(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.ListQueues(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server has answered: %v", err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ListQueues(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestSQSAtAnotherAddress(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	private := testenv.PrivateSQS(t)
	t.Setenv("MILLPOND_TEST_SQS_ENDPOINT", private.Endpoint())
	if got := testenv.SQS(t); got.Endpoint() != private.Endpoint() || got.Region() != private.Region() || got.IsAWS() {
		t.Errorf("the server is %+v", got)
	}
	t.Setenv("MILLPOND_TEST_SQS_ENDPOINT", "")
	t.Setenv("MILLPOND_TEST_SQS_REGION", "eu-central-1")
	if got := testenv.SQS(t); got.Endpoint() != "" || got.Region() != "eu-central-1" || !got.IsAWS() {
		t.Errorf("the server is %+v", got)
	}
	if got, want := testenv.SQS(t).URL("sqs"), "sqs://?region=eu-central-1"; got != want {
		t.Errorf("the URL is %s", got)
	}
}

func TestMotoPassesTopicsOnToQueues(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.Moto(t)
	client, topics := server.Client(t), sns.NewFromConfig(server.Config(t))
	queue := queueURL(t, client, server.NewQueue(t, nil))
	attributes, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatal(err)
	}
	topic, err := topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String(server.QueueName(t, ""))})
	if err != nil {
		t.Fatal(err)
	}
	_, err = topics.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(attributes.Attributes["QueueArn"]),
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topics.Publish(t.Context(), &sns.PublishInput{TopicArn: topic.TopicArn, Message: aws.String("news")}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, client, queue); got[0] != "news" {
		t.Error(got)
	}
}
