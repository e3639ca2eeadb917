package router_test

import (
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	_ "github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// What a producer writes through the service's store goes where the configuration knows, or it
// is told.
func TestProducersWriteToDestinationsOfTheConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		destinations map[string]router.DestinationConfig
		destination  string
		topic        string
		want         error
	}{
		"known":                {shipping(), "eu", "shipments", nil},
		"the service's broker": {shipping(), "", "anything", nil},
		"unknown destination":  {shipping(), "us", "shipments", middleware.ErrUnknownDestination},
		"unknown topic":        {shipping(), "eu", "refunds", middleware.ErrUnknownTopic},
		"none is configured":   {nil, "us", "shipments", nil},
	} {
		t.Run(name, func(t *testing.T) {
			svc, err := router.New(t.Context(), router.Config{
				Service: "shop", Broker: router.BrokerConfig{URL: router.NewURL("memory://")},
				Store:        router.StoreConfig{URL: router.NewURL("sqlite://" + filepath.Join(t.TempDir(), "shop.db"))},
				Destinations: test.destinations,
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, svc.Close()) }()
			store, _ := svc.Store().(*sqlite.Store)
			require.NoError(t, store.Validate(t.Context()))
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			err = sqlite.NewPublisher(tx, store, stores.PublisherConfig{Destination: test.destination}).Publish(test.topic, message.NewMessage("1", nil))
			require.ErrorIs(t, err, test.want)
			if test.want != nil {
				require.ErrorIs(t, err, stores.ErrInvalidOutput)
			}
		})
	}
}

func shipping() map[string]router.DestinationConfig {
	return map[string]router.DestinationConfig{"eu": {URL: router.NewURL("memory://"), Destination: middleware.Destination{Topics: []string{"shipments"}}}}
}
