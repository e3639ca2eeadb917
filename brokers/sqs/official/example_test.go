package official_test

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// The inbox on a router that has watermill-aws: subscriber and handlers stay as they are,
// but for a marshaler that no message ends the program with.
func Example_existingRouter() {
	addInbox := func(config aws.Config, store stores.Store, router *message.Router, handler message.NoPublishHandlerFunc, logger watermill.LoggerAdapter) error {
		subscriber, err := wmsqs.NewSubscriber(wmsqs.SubscriberConfig{
			AWSConfig:   config,
			Unmarshaler: official.Marshaler{},
		}, logger)
		if err != nil {
			return err
		}
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "billing"})
		if err != nil {
			return err
		}
		router.AddMiddleware(inbox.Middleware)
		router.AddConsumerHandler("mark-paid", "payments", subscriber, handler)
		return nil
	}
	_ = addInbox
}

// The same adapter behind millpond's contract: the inbox learns how often a message came,
// a nack has its delay, and running handlers finish when the subscriber is closed.
func Example_behindTheContract() {
	subscribe := func(ctx context.Context, config aws.Config, logger watermill.LoggerAdapter) (message.Subscriber, error) {
		broker, err := official.New(ctx, sqs.Config{
			AWS:     &config,
			Queues:  []string{"payments"}, // whose redrive policy is read
			Consume: sqs.Consume{Visibility: 5 * time.Minute},
		})
		if err != nil {
			return nil, err
		}
		return broker.Subscriber(brokers.SubscriberConfig{Group: "billing", InFlight: 8, Logger: logger})
	}
	_ = subscribe
}
