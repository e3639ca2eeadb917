package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/pause"
)

const (
	pollRecords = 500 // how many are taken from the client at a time

	// A partition with more waiting records than this needs no more. If it is slow enough to be
	// paused, it cannot handle that many before fetching resumes.
	plentyRecords = 5000
	// The same in bytes, for all partitions together, with bounds for each.
	plentyBytes    = 64 << 20
	plentyBytesMin = 256 << 10
	plentyBytesMax = 4 << 20

	// patience is how long partitions with plenty block the others before they are paused. Only
	// partitions that cannot handle a poll's records in that time are paused, because a pause drops
	// records that the client has prefetched.
	patience = 100 * time.Millisecond

	errorPause = 250 * time.Millisecond // failing polls must not spin
)

// intake is the state of the goroutine that polls.
type intake struct {
	polling sync.Mutex    // held from the beginning of a poll until the partitions have its records
	eaten   chan struct{} // a partition needs more, or is new

	mu         sync.Mutex
	interrupts int                // waiting calls of interrupt
	cancel     context.CancelFunc // ends the current poll

	lastError string
	lastTime  time.Time
}

func (i *intake) init() { i.eaten = make(chan struct{}, 1) }

// interrupt returns when the partitions have the records of every poll that has begun.
func (i *intake) interrupt() {
	i.mu.Lock()
	i.interrupts++
	if i.cancel != nil {
		i.cancel()
	}
	i.mu.Unlock()
	i.polling.Lock()
	defer i.polling.Unlock()
	i.mu.Lock()
	i.interrupts--
	i.mu.Unlock()
}

// begin returns the context of the next poll.
func (i *intake) begin(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel = cancel
	if i.interrupts > 0 {
		cancel()
	}
	return ctx, cancel
}

// poke wakes waitForAppetite.
func (i *intake) poke() {
	select {
	case i.eaten <- struct{}{}:
	default:
	}
}

// plenty returns how many bytes one of n partitions may have waiting.
func plenty(n int) int { return min(max(plentyBytes/max(n, 1), plentyBytesMin), plentyBytesMax) }

// waitForAppetite returns when every partition either needs more or is paused.
func (s *session) waitForAppetite() {
	var patient <-chan time.Time
	for {
		partitions := s.owned.all()
		enough := plenty(len(partitions))
		full := partitions[:0]
		for _, p := range partitions {
			if p.full(enough) {
				full = append(full, p)
			}
		}
		if len(full) == 0 {
			return
		}
		if patient == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			patient = timer.C
		}
		select {
		case <-s.intake.eaten:
		case <-patient:
			for _, p := range full {
				p.pause()
			}
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// poll hands the next records to their partitions. An error ends the session.
func (s *session) poll() error {
	s.intake.polling.Lock()
	ctx, cancel := s.intake.begin(s.ctx)
	fetches := s.client.PollRecords(ctx, pollRecords)
	fetches.EachError(s.truncated)
	fetches.EachPartition(s.distribute)
	interrupted := ctx.Err() != nil
	cancel()
	s.intake.polling.Unlock()

	var failed error
	fetches.EachError(func(_ string, _ int32, err error) {
		switch {
		case errors.Is(err, kgo.ErrClientClosed):
			s.stop()
		case interrupted && errors.Is(err, context.Canceled):
		default:
			failed = err
		}
	})
	if failed == nil {
		return nil
	}
	if errors.Is(failed, kerr.UnknownTopicID) || errors.Is(failed, kerr.UnknownTopicOrPartition) || errors.Is(failed, kerr.InconsistentTopicID) {
		if err := s.checkTopic(failed); err != nil {
			return err
		}
	}
	s.report(failed)
	pause.Sleep(s.ctx, errorPause)
	return nil
}

// checkTopic returns an error if this session's topic is gone or another topic has its name. The
// client would keep the old one.
func (s *session) checkTopic(because error) error {
	id, err := s.subscriber.broker.findTopic(s.ctx, s.topic)
	switch {
	case errors.Is(err, ErrNoTopic):
		return fmt.Errorf("kafka: topic %q was deleted: %w", s.topic, because)
	case err == nil && id != s.id:
		return fmt.Errorf("kafka: topic %q was deleted and created again: %w", s.topic, because)
	default: // brokers learn of a change one after another
		return nil
	}
}

// truncated notes that a partition's log was cut: its offsets are reused for other messages.
func (s *session) truncated(_ string, id int32, err error) {
	loss, ok := errors.AsType[*kgo.ErrDataLoss](err)
	if !ok {
		return
	}
	if p := s.owned.one(id); p != nil {
		p.truncate(loss.ResetTo)
	}
}

func (s *session) distribute(fetched kgo.FetchTopicPartition) {
	if len(fetched.Records) == 0 {
		return
	}
	if p := s.owned.one(fetched.Partition); p != nil {
		p.add(fetched.Records)
	}
}

// report logs an error from which the client recovers. It repeats the same error once a second at
// most.
func (s *session) report(err error) {
	if text := err.Error(); text == s.intake.lastError && time.Since(s.intake.lastTime) < time.Second {
		return
	}
	s.intake.lastError, s.intake.lastTime = err.Error(), time.Now()
	if _, ok := errors.AsType[*kgo.ErrGroupSession](err); !ok {
		s.Logger().Error("Fetching failed and is tried again", err, nil)
		return
	}
	s.Logger().Error("Joining the group failed and is tried again", err, watermill.LogFields{"fix": groupAdvice(err)})
}

func groupAdvice(err error) string {
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return "set session_timeout within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return "the group has members of another kind, such as watermill-kafka's: stop them first, or use another group"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return "allow the user to read the group"
	case errors.Is(err, kerr.UnsupportedVersion):
		return "the broker does not know protocol=consumer: use protocol=classic"
	default:
		return "none, if the broker is only away for now"
	}
}
