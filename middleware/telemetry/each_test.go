package telemetry_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/middleware/telemetry"
)

var _ outbox.Hook = (*telemetry.Telemetry)(nil)

func TestPublisherAnswersForEachMessageIfItsOwnDoes(t *testing.T) {
	tel, err := telemetry.New(telemetry.Config{System: "memory"})
	require.NoError(t, err)
	broker, err := memory.New(memory.Config{Capacity: 1, FailWhenFull: true})
	require.NoError(t, err)
	plain, err := broker.Publisher(brokers.PublisherConfig{})
	require.NoError(t, err)
	each, ok := tel.Publisher(plain).(brokers.EachPublisher)
	require.True(t, ok)
	errs := each.PublishEach(t.Context(), "orders", message.NewMessage("1", nil), message.NewMessage("2", nil))
	require.Len(t, errs, 2)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], brokers.ErrFull)
	_, ok = tel.Publisher(refusing{}).(brokers.EachPublisher)
	require.False(t, ok)
}
