package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// leaveAtOnce ends a session without waiting for anything.
	leaveAtOnce time.Duration = 0
	// leaveTimeout bounds the last commit and leaving the group, which saves the others the session
	// timeout. A broker that hangs gets neither.
	leaveTimeout = 5 * time.Second
	// fetchWait is how long the broker may delay an empty fetch. A partition whose fetching resumes
	// waits for the fetch that is running.
	fetchWait = 500 * time.Millisecond
	// heartbeatInterval is how often a member checks whether partitions move; nothing else tells
	// it. With ProtocolConsumer the broker suggests an interval, 5 s by default, but does not
	// insist. A moving partition would wait for it twice: until its owner notices, and until the
	// next one does.
	heartbeatInterval         = 500 * time.Millisecond
	consumerHeartbeatInterval = time.Second
)

// session is one membership in the group, with its partitions.
type session struct {
	*subscription

	client *kgo.Client   // in the client's callbacks use member
	made   chan struct{} // closed when client is set
	id     kadm.TopicID
	ctx    context.Context // ends with this session's intake
	stop   context.CancelFunc
	life   context.Context // the client's; its end fails running requests
	die    context.CancelFunc

	intake     intake
	owned      owned
	commits    commits
	background sync.WaitGroup
}

func newSession(sub *subscription, id kadm.TopicID) (*session, error) {
	s := &session{subscription: sub, id: id, made: make(chan struct{})}
	s.owned.partitions = make(map[int32]*partition)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.life, s.die = context.WithCancel(context.Background())
	s.intake.init()
	heard := newMembership(sub.config())
	options := append(s.consuming(), kgo.WithHooks(heard))
	if extra := sub.subscriber.broker.options; extra != nil {
		options = append(options, extra(sub.subscriber)...)
	}
	client, err := sub.subscriber.broker.config.client(sub.Logger(), options...)
	if err != nil {
		s.stop()
		s.die()
		return nil, err
	}
	s.client = client
	sub.membership.Store(heard)
	close(s.made)
	s.background.Go(s.commitRegularly)
	if sub.config().Protocol == ProtocolConsumer {
		s.background.Go(s.heartbeat)
	}
	return s, nil
}

// member returns the client, even in a callback that comes before newSession has it.
func (s *session) member() *kgo.Client {
	<-s.made
	return s.client
}

// consuming returns the options of a subscriber's client.
func (s *session) consuming() []kgo.Opt {
	config := s.config()
	options := []kgo.Opt{
		kgo.WithContext(s.life),
		kgo.ConsumerGroup(s.subscriber.config.Group),
		kgo.ConsumeTopics(s.topic),
		kgo.ConsumeStartOffset(s.start()),
		// After a lost offset, existing messages must never be skipped.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(config.SessionTimeout),
		kgo.HeartbeatInterval(min(heartbeatInterval, config.SessionTimeout/3)),
		kgo.RebalanceTimeout(rebalanceTimeout(config)),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(16 << 20),
		kgo.FetchMaxPartitionBytes(1 << 20),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepRetryableFetchErrors(), // the client would hide a missing topic for long
		kgo.DisableAutoCommit(),        // see commit.go
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
		kgo.OnOffsetsFetched(s.fetched),
		kgo.AdjustFetchOffsetsFn(s.pin),
	}
	if config.Protocol == ProtocolConsumer {
		return append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	return append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
}

// start is where a group without a committed offset begins.
func (s *session) start() kgo.Offset {
	if s.config().StartAtNewest {
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().AtStart()
}

// rebalanceTimeout is how long the group waits for its members to give up partitions.
func rebalanceTimeout(c *Consume) time.Duration { return max(time.Minute, 2*c.RebalanceDrain) }

// heartbeat makes a member of ProtocolConsumer learn of changes sooner than the broker suggests.
func (s *session) heartbeat() {
	ticker := time.NewTicker(consumerHeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.client.ForceRebalance() // the client's name for a heartbeat
		case <-s.ctx.Done():
			return
		}
	}
}

// run receives records until ctx ends. After an error the session cannot go on.
func (s *session) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.stop)()
	for s.ctx.Err() == nil {
		s.waitForAppetite()
		if err := s.poll(); err != nil {
			return err
		}
	}
	return nil
}

// end waits for running messages, for drain at most, commits, leaves the group and closes the
// client. The broker has leaveTimeout for that.
func (s *session) end(drain time.Duration) {
	s.stop()
	s.NotSettled(s.drain(s.owned.all(), drain), drain)
	defer s.die()
	defer time.AfterFunc(leaveTimeout, s.die).Stop()
	s.commit()
	if err := s.client.LeaveGroupContext(s.life); err != nil && !errors.Is(err, kgo.ErrClientClosed) {
		s.Logger().Info("Leaving the group failed; the other members must wait for the session timeout", watermill.LogFields{"error": err.Error()})
	}
	s.client.Close()
	s.background.Wait()
}
