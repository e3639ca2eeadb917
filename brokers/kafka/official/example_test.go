package official_test

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// The inbox on a router that has watermill-kafka: subscriber and handlers stay as they
// are.
func Example_existingRouter() {
	addInbox := func(ctx context.Context, pool *pgxpool.Pool, router *message.Router, handler message.NoPublishHandlerFunc, logger watermill.LoggerAdapter) error {
		store, err := postgres.New(pool, postgres.Config{})
		if err != nil {
			return err
		}
		if _, err := store.Migrate(ctx); err != nil { // or: millpond migrate up
			return err
		}
		saramaConfig := kafka.DefaultSaramaSubscriberConfig()
		saramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
		subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers:               []string{"kafka-1:9092"},
			ConsumerGroup:         "billing",
			OverwriteSaramaConfig: saramaConfig,
			Unmarshaler:           kafka.DefaultMarshaler{},
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
		retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { defer stop(); return retries.Run(ctx) })          // runs what has failed again
		group.Go(func() error { defer stop(); return router.Run(ctx) })           // one that ends, ends both
		return errors.Join(group.Wait(), inbox.Close(context.WithoutCancel(ctx))) // Close: this process has not died
	}
	_ = addInbox
}

// The same adapter behind millpond's contract: the inbox learns where a message is from
// and whether it may be a redelivery, and running handlers survive a rebalance.
func Example_behindTheContract() {
	subscribe := func(ctx context.Context, tuned *sarama.Config, logger watermill.LoggerAdapter) (message.Subscriber, error) {
		broker, err := official.New(ctx, official.Config{
			Brokers: []string{"kafka-1:9092"},
			Sarama: func(c *sarama.Config) {
				c.RackID = tuned.RackID // and whatever else the program has set so far
			},
		})
		if err != nil {
			return nil, err
		}
		return broker.Subscriber(brokers.SubscriberConfig{Group: "billing", InFlight: 8, Logger: logger})
	}
	_ = subscribe
}

// Producers without Watermill set no UUID: name the header that identifies an event, and
// maybe Kafka's coordinates for those that have none.
func Example_foreignProducers() {
	inboxForForeign := func(store stores.Store) (*middleware.Inbox, error) {
		return middleware.NewInbox(store, middleware.InboxConfig{
			Service: "billing",
			Keys:    keys.First(keys.Metadata("event-id")).Then(keys.UUID()).Then(keys.Coordinates()),
		})
	}
	_ = inboxForForeign
}
