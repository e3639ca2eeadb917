package kafka_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestUnfinishedMessagesEndTheSuspicion: a member that died settles much more than its
// commit distance between two commits. What it had in flight is suspect however far that is
// from its last commit, and what it cannot have begun is not.
func TestUnfinishedMessagesEndTheSuspicion(t *testing.T) {
	t.Parallel()
	const n, distance, settled = 200, 10, 100
	topic, group := newTopic(t, testenv.Kafka(t), 1), uuid.NewString()
	fill(t, testenv.Kafka(t), topic, 1, n)
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{CommitInterval: time.Hour, CommitDistance: distance, InFlightPerPartition: 4}})
	wires := kafka.Tap(b)
	config := brokers.SubscriberConfig{Group: group, InFlight: 4, DrainTimeout: time.Millisecond}
	dying := subscriber(t, b, config)
	messages := subscribe(t, dying, topic)
	finished := map[string]bool{}
	for range settled {
		msg, d := receive(t, messages)
		finished[d.Coordinates] = true
		msg.Ack()
	}
	begun := map[string]bool{}
	// The first unfinished message may be far behind the others: then fewer than four begin.
	mayBegin := func() bool {
		at := func(offset int) string { return topic + "/0/" + strconv.Itoa(offset) }
		first := 0
		for finished[at(first)] {
			first++
		}
		for offset := first; offset < first+distance; offset++ {
			if !finished[at(offset)] && !begun[at(offset)] {
				return true
			}
		}
		return false
	}
	for len(begun) < 4 && mayBegin() {
		_, d := receive(t, messages)
		begun[d.Coordinates] = true
	}
	wires.Cut(dying)

	unfinished := 0
	again := subscribe(t, subscriber(t, b, config), topic)
	for range n {
		msg, d := receive(t, again)
		if (finished[d.Coordinates] || begun[d.Coordinates]) && !d.Suspect {
			t.Errorf("%s was with a member that died, and is not suspect", d.Coordinates)
		}
		if d.Suspect && !finished[d.Coordinates] {
			unfinished++
			brokers.SetUnfinished(msg)
		}
		msg.Ack()
	}
	if unfinished < distance || unfinished > distance+8 { // those in flight are known a little later
		t.Errorf("%d unfinished messages are suspect, want about %d", unfinished, distance)
	}
}

// TestNothingIsSuspectForTheFirstMember: a new group begins with a backlog that nobody has begun.
// What its first member has begun before it died is suspect, although it has settled nothing.
func TestNothingIsSuspectForTheFirstMember(t *testing.T) {
	t.Parallel()
	const n = 20
	topic, group := newTopic(t, testenv.Kafka(t), 1), uuid.NewString()
	fill(t, testenv.Kafka(t), topic, 1, n)
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{CommitInterval: time.Hour, InFlightPerPartition: n}})
	wires := kafka.Tap(b)
	config := brokers.SubscriberConfig{Group: group, InFlight: n, DrainTimeout: time.Millisecond}
	first := subscriber(t, b, config)
	messages := subscribe(t, first, topic)
	for range n {
		if _, d := receive(t, messages); d.Suspect {
			t.Errorf("%s is suspect", d.Coordinates)
		}
	}
	wires.Cut(first)

	again := subscribe(t, subscriber(t, b, config), topic)
	for range n {
		msg, d := receive(t, again)
		if !d.Suspect {
			t.Errorf("%s was with a member that died, and is not suspect", d.Coordinates)
		}
		msg.Ack()
	}
}
