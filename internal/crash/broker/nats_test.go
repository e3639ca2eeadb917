package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/internal/testenv"
	natsserver "github.com/millpond-go/millpond/internal/testenv/nats"
)

const ackWait = 3 * time.Second

func init() {
	kinds["nats"] = &kind{
		start:   newNATS,
		open:    func(ctx context.Context, s setup, _ *recorder) (brokers.Broker, error) { return openNATS(ctx, s) },
		vary:    func(_ uint64, _ bool, s *setup) { s.Limit = ampleLimit },
		places:  func(setup) []place { return nil },
		absence: ackWait,
		returns: true,
	}
}

func openNATS(ctx context.Context, s setup) (brokers.Broker, error) {
	return nats.New(ctx, nats.Config{
		Servers: []string{s.Broker}, CreateStreams: true,
		Consume: nats.Consume{
			AckWait: ackWait, DeliveryLimit: s.Limit,
			Unmarshal: func(m jetstream.Msg) (*message.Message, error) { return s.readOrder(bytes.Clone(m.Data())) },
		},
	})
}

// natsServer is a server with the stream of the service.
type natsServer struct {
	*natsserver.Server

	setup setup // as a worker would have it
	asks  jetstream.JetStream
}

func newNATS(t *testing.T, s setup) server {
	t.Helper()
	n := &natsServer{Server: testenv.PrivateNATS(t), setup: s}
	n.setup.Broker = n.Address()
	conn, err := natsgo.Connect(n.URL(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if n.asks, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *natsServer) address() string { return n.Address() }

func (n *natsServer) client(ctx context.Context) (brokers.Broker, error) {
	return openNATS(ctx, n.setup)
}

// left is how many messages of the stream the group has not acked.
func (n *natsServer) left(ctx context.Context) (int64, error) {
	info, err := n.info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.NumPending) + int64(info.NumAckPending), nil
}

// dropped is how many messages the server has said to be at their limit.
func (n *natsServer) dropped(ctx context.Context) (int64, error) {
	stream, err := n.asks.Stream(ctx, "millpond_max_deliveries")
	if err != nil {
		return 0, err
	}
	return int64(stream.CachedInfo().State.Msgs), nil
}

// connected: the server knows pulls that wait, not who has left.
func (*natsServer) connected(context.Context) (int, error) { return 0, nil }

func (n *natsServer) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	stream, err := n.asks.StreamNameBySubject(ctx, topic)
	if err != nil {
		return nil, err
	}
	found, err := n.asks.Consumer(ctx, stream, group+"-"+topic)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return &jetstream.ConsumerInfo{}, nil
	}
	if err != nil {
		return nil, err
	}
	return found.Info(ctx)
}

func (n *natsServer) describe(ctx context.Context) string {
	info, err := n.info(ctx)
	return fmt.Sprintf("%+v, %v", info, err)
}
