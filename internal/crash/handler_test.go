package crash

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// handler is the handler of a consumer, with the typed helper of the store.
func (s *shop) handler(b *backend, consumer string) message.HandlerFunc {
	if s.Leases.on() {
		return s.leased(b, consumer)
	}
	return func(msg *message.Message) ([]*message.Message, error) {
		nth, err := s.count("runs-"+consumer, string(msg.Payload))
		if err != nil {
			return nil, err
		}
		s.recorder.sayFacts(msg)
		apply := func(ctx context.Context, tx transaction, msg *message.Message) error {
			return s.apply(ctx, tx, consumer, msg, nth)
		}
		run := b.handler(apply)
		if s.plain(msg) { // programs may keep Watermill's signature
			run = func(msg *message.Message) error {
				tx, ok := b.find(msg.Context())
				if !ok {
					return stores.ErrNoTx
				}
				return apply(msg.Context(), tx, msg)
			}
		}
		if tx, ok := msg.Context().Value(variantTxKey{}).(transaction); ok {
			run = func(msg *message.Message) error { return apply(msg.Context(), tx, msg) }
		}
		err = run(msg)
		switch conductOf(msg.UUID) {
		case outputs:
			if err == nil {
				return message.Messages{message.NewMessage("an output", nil)}, nil
			}
		case reenters:
			if nth == 1 {
				return nil, ignore(run(msg))
			}
		}
		return nil, err
	}
}

// plain reports whether the handler does without the store's helper, which would tell the
// store that it has failed.
func (s *shop) plain(msg *message.Message) bool {
	switch conductOf(msg.UUID) {
	case echoes, spawns, echoed:
		return true
	}
	return s.Batches && item(msg.UUID)%2 == 0 && !slices.Contains(dishonest, conductOf(msg.UUID))
}

// count says which time it is that this happens to the message with this payload, from 1,
// in all processes. What it counts by survives them, and knows nothing of the database.
func (s *shop) count(what, payload string) (int64, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(payload))
	file, err := os.OpenFile(filepath.Join(s.Dir, fmt.Sprintf("%s-%x", what, h.Sum64())), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
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

func ignore(error) error { return nil }

// apply writes both effects, with the counter between them, and behaves as the id says.
func (s *shop) apply(ctx context.Context, tx transaction, consumer string, msg *message.Message, nth int64) error {
	run := fmt.Sprintf("%d.%d-%d", s.worker.Index, s.worker.Start, s.runs.Add(1))
	s.recorder.say(ctx, saidRun, run)
	conduct := conductOf(msg.UUID)
	if s.Leases.on() {
		conduct = inWrites(conduct)
	}
	if err := s.dialect.sessions.look(ctx, tx, s.recorder); err != nil {
		return err
	}
	effect := func(part int) error {
		err := tx.exec(ctx, insertEffect, consumer, msg.UUID, part, run, string(msg.Payload))
		s.recorder.say(ctx, saidEffect, fmt.Sprintf("%d by %s: %v", part, run, err))
		return err
	}
	if err := effect(1); err != nil {
		return err
	}
	if storyOf(ctx).retry {
		s.recorder.at(ctx, pointRetry)
	} else {
		s.recorder.at(ctx, pointBetween)
	}
	hiding := false
	s.speak(ctx, consumer, msg, conduct, nth)
	if err := s.behave(ctx, tx, conduct, nth); err != nil {
		if hiding = slices.Contains(dishonest, conduct); !hiding {
			return err
		}
		s.recorder.say(ctx, "handler hides", err)
	}
	counted := tx.exec(ctx, sellItem, consumer, item(msg.UUID))
	// A statement that was not even sent, because the handler's time was over, leaves no
	// trace in the transaction: only the handler can tell.
	if err := errors.Join(counted, effect(2)); err != nil && (!hiding || ctx.Err() != nil) {
		return err
	}
	if conduct == settings {
		return s.dialect.sessions.change(ctx, tx, msg)
	}
	if conduct == leaks && nth == 1 {
		go func() {
			for tx.exec(ctx, "SELECT 1") == nil { // until it is told off
			}
		}()
	}
	return nil
}

// speak publishes what the conduct says, and gives it time to arrive while the attempt runs.
func (s *shop) speak(ctx context.Context, consumer string, msg *message.Message, c conduct, nth int64) {
	switch {
	case c == echoes && nth == 1:
		s.echoing[consumer].echo(msg, order{ID: msg.UUID, Payload: string(msg.Payload)})
		pause.Sleep(ctx, 50*time.Millisecond)
	case c == spawns && nth <= 2 && consumer == consumers[0]: // whose failed messages the store keeps
		s.echoing[consumer].echo(msg, spawned(msg.UUID))
		pause.Sleep(ctx, 50*time.Millisecond)
	}
}

// item is what an order is for.
func item(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % items)
}

var (
	errFlaky    = errors.New("the handler fails, for now")
	errHopeless = errors.New("the handler fails, as always")
	errUnwanted = errors.New("the handler fails, and nobody takes what is left")
	errRival    = errors.New("somebody else was faster")
	errInvalid  = errors.New("the order is invalid")
)

// behave does what the conduct says, between the effects.
func (s *shop) behave(ctx context.Context, tx transaction, c conduct, nth int64) error {
	switch c {
	case slow:
		return tx.linger(ctx)
	case batched:
		return tx.detour(ctx)
	case hopeless:
		return errHopeless
	case unkept, bulky:
		return errUnwanted
	case poison:
		os.Exit(3)
	case permanent:
		if !s.Operated || nth <= 2 {
			return middleware.Permanent(errInvalid)
		}
	}
	if nth <= 2 {
		switch c {
		case flaky:
			return errFlaky
		case rival:
			return middleware.Contention(errRival)
		case panics:
			panic("the handler panics")
		}
	}
	if nth == 1 {
		return misbehave(ctx, tx, c)
	}
	return nil
}

// misbehave does what is done only at first.
func misbehave(ctx context.Context, tx transaction, c conduct) error {
	switch c {
	case once, spawns, sealed, unwritten:
		return errFlaky
	case misjudged:
		return errMisjudged
	case exits:
		os.Exit(3)
	case goexits:
		runtime.Goexit()
	case swallows:
		return tx.exec(ctx, takeAgain)
	case replaces:
		return tx.fail(ctx)
	case commits:
		return errors.Join(tx.exec(ctx, "COMMIT"), tx.finish(ctx, true))
	case rollback:
		return errors.Join(tx.exec(ctx, "ROLLBACK"), tx.finish(ctx, false))
	case defines:
		return tx.exec(ctx, "CREATE TABLE IF NOT EXISTS defined (n integer)")
	case defers:
		return tx.exec(ctx, breakDeferred)
	case cancels:
		soon, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		return tx.linger(soon)
	}
	return nil
}
