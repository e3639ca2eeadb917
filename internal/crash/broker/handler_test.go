package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// conduct is how the handler behaves for a message. It is part of the id, so every
// process knows it.
type conduct string

const (
	honest   conduct = "honest"
	slow     conduct = "slow"     // takes its time between the effects
	flaky    conduct = "flaky"    // fails twice, after the first effect
	panics   conduct = "panics"   // once, after the first effect
	stalls   conduct = "stalls"   // fails once, after a point at which the process may be stopped
	hopeless conduct = "hopeless" // always fails
	misread  conduct = "misread"  // reading it panics: it goes to quarantine
)

func conductOf(id string) conduct {
	_, c, _ := strings.Cut(id, "-")
	return conduct(c)
}

// read is what a service reads messages with, after the adapter's own way.
func (s setup) read(msg *message.Message) (*message.Message, error) {
	switch {
	case conductOf(msg.UUID) != misread:
	case s.Blind:
		msg.UUID = "unreadable"
	default:
		panic("reading panics")
	}
	return msg, nil
}

// readOrder is read where the adapter's own way is not to be had.
func (s setup) readOrder(body []byte) (*message.Message, error) {
	return s.read(message.NewMessage(strings.TrimPrefix(string(body), "order "), body))
}

var (
	errFlaky    = errors.New("the handler fails, for now")
	errStalled  = errors.New("the handler stood still, and gives up")
	errHopeless = errors.New("the handler fails, as always")
)

// countRun says which run of the handler for this message it is, from 1, in all
// processes.
func (s *shop) countRun(id string) (int64, error) {
	file, err := os.OpenFile(filepath.Join(s.Dir, "runs-"+id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := file.WriteString("."); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// apply writes both effects, with a counter between them, and behaves as the id says.
func (s *shop) apply(ctx context.Context, exec transaction, msg *message.Message) error {
	nth, err := s.countRun(msg.UUID)
	if err != nil {
		return err
	}
	run := fmt.Sprintf("%d.%d-%d", s.worker.Index, s.worker.Start, s.runs.Add(1))
	s.recorder.sayf(ctx, "run %s, number %d", run, nth)
	facts, _ := brokers.DeliveryOf(msg)
	s.recorder.sayf(ctx, "%s%s", saidRead, factsOf(facts))
	s.recorder.at(ctx, pointStarted)
	const effect = "INSERT INTO effect VALUES ($1, $2, $3)"
	if err := exec(ctx, effect, msg.UUID, 1, run); err != nil {
		return err
	}
	if deliveryOf(ctx).retry {
		s.recorder.at(ctx, pointRetry)
	} else {
		s.recorder.at(ctx, pointBetween)
	}
	if err := s.behave(ctx, conductOf(msg.UUID), nth); err != nil {
		return err
	}
	if err := exec(ctx, "UPDATE stock SET sold = sold + 1 WHERE item = $1", item(msg.UUID)); err != nil {
		return err
	}
	return exec(ctx, effect, msg.UUID, 2, run)
}

func (s *shop) behave(ctx context.Context, c conduct, nth int64) error {
	switch {
	case c == hopeless:
		return errHopeless
	case c == flaky && nth <= 2:
		return errFlaky
	case c == panics && nth == 1:
		panic("the handler panics")
	case c == stalls && nth == 1:
		s.recorder.at(ctx, pointStall)
		return errStalled
	case c == slow:
		select {
		case <-time.After(s.Slow): // work
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// item is what an order is for.
func item(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % items)
}
