package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// callbacks gives the inbox functions of the program's. For messages of some conducts they
// panic, each in its own place, or refuse for a while, as a key service does that is away.
func (s *shop) callbacks(c *middleware.InboxConfig) {
	c.Keys = keys.First(keys.Func("crash", identify)).Then(keys.UUID())
	c.Hooks = append(c.Hooks, nosy{})
	c.Keep.Codec = &middleware.Codec{Name: "crash", Encode: s.seal, Decode: s.open}
	c.DeadLetters = middleware.DeadLetterConfig{Publisher: copies{s}, Topic: "dead"}
}

// identify has no id for any message, and does not come to that for some.
func identify(msg *message.Message) string {
	if conductOf(msg.UUID) == keyless {
		panic("a key function panics")
	}
	return ""
}

var errMisjudged = errors.New("the handler fails, in a way that nobody expects")

func classify(err error) stores.Class {
	if errors.Is(err, errMisjudged) {
		panic("a classifier panics")
	}
	return ""
}

var (
	errAway  = errors.New("the key service is away")
	errNever = errors.New("this must not be kept")
)

// seal is the codec's Encode. It changes nothing.
func (s *shop) seal(ctx context.Context, kept middleware.Kept) (middleware.Kept, error) {
	return kept, s.refuse(ctx, "encode", 4)
}

func (s *shop) open(ctx context.Context, kept middleware.Kept) (middleware.Kept, error) {
	return kept, s.refuse(ctx, "decode", 2)
}

// refuse panics at the first call for a message that is sealed, and fails at some more. One
// that is not to be kept it refuses for good.
func (s *shop) refuse(ctx context.Context, what string, until int64) error {
	of := storyOf(ctx)
	switch conductOf(of.id) {
	case unkept:
		return middleware.Permanent(errNever)
	case sealed:
	default:
		return nil
	}
	nth, err := s.count(what+"-"+of.consumer, of.payload)
	switch {
	case err != nil:
		return err
	case nth == 1:
		panic("a codec panics")
	case nth < until:
		return errAway
	}
	return nil
}

// copies takes the copies of dead letters: some at once, others after it has panicked and
// failed.
type copies struct{ *shop }

func (c copies) Publish(_ string, letters ...*message.Message) error {
	for _, letter := range letters {
		ctx := letter.Context()
		of := storyOf(ctx)
		nth, err := c.count("copies-"+of.consumer, of.payload)
		switch {
		case err != nil:
			return err
		case conductOf(of.id) == bulky:
			return fmt.Errorf("crash: %w", brokers.ErrTooLarge)
		case item(of.id)%2 == 0 && nth == 1:
			panic("a publisher panics")
		case item(of.id)%2 == 0 && nth == 2:
			return errAway
		}
		c.recorder.say(ctx, saidCopied, letter.Metadata.Get(middleware.MetadataClass))
	}
	return nil
}

func (copies) Close() error { return nil }

// copied checks that there is a copy of each dead letter, or that its row says why not.
func (a *audit) copied(history []event) {
	copied := make(map[key]bool)
	for _, e := range history {
		if e.What == saidCopied {
			copied[key{e.Consumer, e.ID}] = true
		}
	}
	for _, e := range a.entries {
		row, failure := a.inbox[e.key()], a.failures[e.key()]
		if !a.settled(e) || row.status != stores.StatusFailed {
			continue
		}
		refused := strings.HasSuffix(failure.text, "[no copy: crash: "+brokers.ErrTooLarge.Error()+"]")
		killed := strings.HasPrefix(failure.text, "middleware: the process ended while") && strings.HasSuffix(failure.text, " while the codec was asked, or before]")
		// What is unconfirmed may have used up the time of its delivery before it failed.
		late := a.unconfirmed(e.key()) && strings.HasSuffix(failure.text, "[no copy: "+errAway.Error()+"]")
		if refused != (e.conduct() == bulky && !killed) || !refused && !killed && !late && !copied[e.key()] {
			a.reportf("copy", e.key(), "%q has failed for good, its copy was published: %t, and its row says %q", e.Payload, copied[e.key()], failure.text)
		}
	}
}

// nosy is a hook that panics wherever it is called.
type nosy struct{}

var (
	_ middleware.DeliveryEndHook = nosy{}
	_ middleware.ClaimStartHook  = nosy{}
	_ middleware.ClaimEndHook    = nosy{}
	_ middleware.HandlerEndHook  = nosy{}
	_ middleware.CommitStartHook = nosy{}
	_ middleware.CommitEndHook   = nosy{}
	_ middleware.HoldHook        = nosy{}
)

func (nosy) panic(ctx context.Context) {
	if conductOf(storyOf(ctx).id) == observed {
		panic("a hook panics")
	}
}

func (n nosy) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	n.panic(ctx)
	return ctx
}

func (n nosy) CommitStart(ctx context.Context) context.Context {
	n.panic(ctx)
	return ctx
}

func (n nosy) ClaimEnd(ctx context.Context, _ stores.Verdict, _ error)   { n.panic(ctx) }
func (n nosy) HandlerEnd(ctx context.Context, _ time.Duration, _ error)  { n.panic(ctx) }
func (n nosy) CommitEnd(ctx context.Context, _ error)                    { n.panic(ctx) }
func (n nosy) DeliveryEnd(ctx context.Context, _ middleware.DeliveryEnd) { n.panic(ctx) }
func (n nosy) Hold(ctx context.Context, _ error, _ time.Duration)        { n.panic(ctx) }
