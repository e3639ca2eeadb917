package delivery

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// A message that has failed for good is kept, and copied if configured, before its delivery is
// acked. A codec or a publisher may refuse. No refusal runs the handler again, and every refusal
// has a bound.

// maxEncodings is how often one delivery calls a failing codec before it leaves the message to the
// broker.
const maxEncodings = 5

// refused is what one delivery knows about refusals.
type refused struct {
	tooLarge bool // the store cannot keep the content

	endsProcess bool     // the codec seems to end the process each time
	encodings   int      // calls of the codec
	unkept      bool     // the codec is not called again, and the quarantine keeps no content
	copied      bool     // the copy of the dead letter is published
	late        error    // why it was not published in time
	noCopy      error    // why there is no copy
	said        []string // complaints already logged
	waits       bool     // the row says failed, and the broker keeps the message
}

// refusedForGood reports whether trying again cannot help.
func refusedForGood(err error) bool {
	if class, ok := budget.Marked(err); ok && class == stores.ClassPermanent {
		return true
	}
	return errors.Is(err, ErrRefusedForGood)
}

// notEncoded decides about a failure whose message the codec refused. If it returns an error, the
// codec is called again.
func (d *Delivery) notEncoded(f *stores.Failure, why error, acked bool) error {
	d.refused.encodings++
	asked := d.refused.encodings > maxEncodings
	switch {
	case acked && refusedForGood(why):
		return errNotKeepable
	case acked: // nobody else has the message
		return why
	case f.Status == stores.StatusPending && (asked || refusedForGood(why)): // the broker has it, and the attempt counts
		d.complain("a failed message cannot be kept", why)
		f.Placement, f.Content = stores.PlacementRedelivered, d.without(stores.ContentNone)
	case refusedForGood(why):
		f.Placement, f.Content = stores.PlacementRedelivered, d.notKept(why)
		f.Error = text.Note(f.Error, "not kept", why)
	case f.Status == stores.StatusFailed && asked:
		d.keepLater(f, why)
	default:
		return why
	}
	return nil
}

// keepLater leaves a message that has failed for good, and cannot be kept or copied now, to the
// broker. Its row says so, and no redelivery runs the handler.
func (d *Delivery) keepLater(f *stores.Failure, why error) {
	d.refused.waits = true
	f.Placement, f.Content = stores.PlacementRedelivered, d.without(stores.ContentNone)
	d.complain("a message that has failed for good cannot be kept or copied now, and is left to the broker", why)
}

// notKept gives up a message that the codec refuses: no content is kept.
func (d *Delivery) notKept(why error) *stores.Content {
	d.complain("a message is not kept: its codec refuses it", why)
	return d.without(stores.ContentRefused)
}

// complain reports a refusal, once per delivery.
func (d *Delivery) complain(text string, why error) {
	if slices.Contains(d.refused.said, text) {
		return
	}
	d.refused.said = append(d.refused.said, text)
	d.arrival.Observer.Complains(text, why)
}

// refusedBefore handles a codec's refusal of a message that had failed for good, or was discarded,
// before this delivery. c is the row's content if nothing will ever be kept. Otherwise the delivery
// goes on with n.
func (d *Delivery) refusedBefore(seen stores.FailureState, why error) (c *stores.Content, n next) {
	wait, giveUp := d.arrival.Policy.Patience(seen.Age)
	switch {
	case refusedForGood(why) || giveUp:
		return d.notKept(why), next{}
	case wait:
		return nil, heldFor(why)
	}
	d.end.Back = GiveBack{Failed: true, After: d.arrival.Policy.Max}
	d.end.Up = fmt.Errorf("middleware: the message has failed and cannot be kept: %w", why)
	return nil, d.done(GivenBack)
}

var errNotEncoded = errors.New("middleware: the message is not kept in quarantine")

// notQuarantined decides about a message for the quarantine that the codec refuses. The message may
// be given back as failed, because a broker that counts deliveries may dead-letter it. Otherwise
// the codec is called again, unless refused.unkept forbids it.
func (d *Delivery) notQuarantined(why error) (decided bool, n next) {
	d.refused.encodings++
	count := d.arrival.Origin.Count
	if d.refused.encodings <= maxEncodings || !d.brokerHasIt() || count == 0 || d.stopping() {
		return false, next{}
	}
	if count >= d.arrival.Policy.Uncounted {
		d.refused.unkept = true
		return false, next{}
	}
	d.uncount(why)
	d.end.Back, d.end.Up = GiveBack{Failed: true, After: d.arrival.Policy.Pause(count)}, why
	return true, d.done(GivenBack)
}

// stopping reports whether the message's context has ended.
func (d *Delivery) stopping() bool { return d.arrival.Contexts.Shutdown.Err() != nil }

// brokerHasIt reports whether a nack brings the message back.
func (d *Delivery) brokerHasIt() bool { return d.arrival.Retry == nil && !d.acked() }

// unkept stops calling the codec for a message in quarantine, if the broker does not count
// deliveries. It reports false if a later delivery may call the codec again.
func (d *Delivery) unkept(why error) bool {
	if !errors.Is(why, errNotEncoded) {
		return false
	}
	switch {
	case d.arrival.Retry != nil:
		d.refused.unkept = !d.stopping() && d.row.state.Age >= d.arrival.Policy.Age
	case d.brokerHasIt():
		d.refused.unkept = !d.stopping() && d.arrival.Origin.Count == 0
	default: // nobody else has the message
		d.refused.unkept = true
	}
	return d.refused.unkept
}
