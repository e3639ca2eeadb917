package official_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// The inbox on a router that has watermill-amqp: subscriber and handlers stay as they
// are, but for the marshaler, which can read a message that comes again.
func Example_existingRouter() {
	addInbox := func(router *message.Router, store stores.Store, handler message.NoPublishHandlerFunc, logger watermill.LoggerAdapter) error {
		config := wmamqp.NewDurablePubSubConfig("amqp://guest:guest@rabbit-1:5672/", wmamqp.GenerateQueueNameTopicNameWithSuffix("billing"))
		config.Marshaler = official.Marshaler{}
		subscriber, err := wmamqp.NewSubscriber(config, logger)
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

// The same adapter behind millpond's contract: the inbox learns which delivery of a
// message it sees, and running handlers finish when the subscriber is closed. Four
// Subscribe calls are four messages in flight.
func Example_behindTheContract() {
	subscribe := func(ctx context.Context, logger watermill.LoggerAdapter) (message.Subscriber, error) {
		broker, err := official.New(ctx, official.Config{
			Config:    amqp.Config{Addresses: []string{"rabbit-1:5672", "rabbit-2:5672"}},
			Watermill: func(c *wmamqp.Config) { c.Consume.Consumer = "billing-1" },
		})
		if err != nil {
			return nil, err
		}
		return broker.Subscriber(brokers.SubscriberConfig{Group: "billing", Logger: logger})
	}
	_ = subscribe
}
