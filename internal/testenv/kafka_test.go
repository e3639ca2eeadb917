package testenv_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func kafkaClient(t *testing.T, brokers []string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func produce(ctx context.Context, t *testing.T, client *kgo.Client, topic, value string) {
	t.Helper()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestKafkaKeepsWhatItHasTakenWhenItIsKilled(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivateKafka(t, testenv.WithKafkaSettings(map[string]string{"message.max.bytes": "100000"}))
	brokers, topic := []string{server.Address()}, "topic-"+uuid.NewString()
	client := kafkaClient(t, brokers, kgo.ConsumeTopics(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	produce(t.Context(), t, client, topic, "before")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	produce(t.Context(), t, client, topic, "after")
	var got []string
	for len(got) < 2 {
		fetches := client.PollFetches(t.Context())
		if t.Context().Err() != nil {
			t.Fatal("not all records came")
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if got[0] != "before" || got[1] != "after" {
		t.Error(got)
	}
	tooLarge := &kgo.Record{Topic: topic, Value: make([]byte, 200_000)}
	if err := client.ProduceSync(t.Context(), tooLarge).FirstErr(); err == nil {
		t.Error("the setting has no effect")
	}
}

func TestKafkaIsShared(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	if one, two := testenv.Kafka(t), testenv.Kafka(t); one[0] != two[0] {
		t.Error(one, two)
	}
	if err := kafkaClient(t, testenv.Kafka(t)).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
