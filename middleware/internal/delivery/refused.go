package delivery

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// A message that has failed for good is kept, and copied if that is wanted, before its
// delivery is acked. A codec or a publisher may refuse that. No refusal makes the handler
// run again, and each ends.

// maxEncodings is how often a codec that fails is asked for one delivery, before its
// message is left to the broker.
const maxEncodings = 5

// refused is what is known of the refusals that one delivery has met.
type refused struct {
	tooLarge bool // the store cannot keep the content

	endsProcess bool     // the codec, it seems, each time that it is asked
	encodings   int      // by the codec
	unkept      bool     // it is asked no more, and the quarantine keeps nothing of the message
	copied      bool     // the copy of the dead letter is published
	late        error    // why it was not, when its time was over
	noCopy      error    // why there is none
	said        []string // in the log
	waits       bool     // the row says that the message has failed, and the broker keeps it
}

// refusedForGood reports whether trying again cannot help.
func refusedForGood(err error) bool {
	if class, ok := budget.Marked(err); ok && class == stores.ClassPermanent {
		return true
	}
	return errors.Is(err, ErrRefusedForGood)
}

// notEncoded decides what becomes of a failure whose message the codec has refused. An
// error means that it is asked again.
func (d *Delivery) notEncoded(f *stores.Failure, why error, acked bool) error {
	d.refused.encodings++
	asked := d.refused.encodings > maxEncodings
	switch {
	case acked && refusedForGood(why):
		return errNotKeepable
	case acked: // nobody else has it
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

// keepLater lets the broker keep a message that has failed for good and that cannot be kept
// or copied now: its row says so, and no redelivery of it runs the handler.
func (d *Delivery) keepLater(f *stores.Failure, why error) {
	d.refused.waits = true
	f.Placement, f.Content = stores.PlacementRedelivered, d.without(stores.ContentNone)
	d.complain("a message that has failed for good cannot be kept or copied now, and is left to the broker", why)
}

// notKept ends a refusal of the codec: the message is nowhere any more.
func (d *Delivery) notKept(why error) *stores.Content {
	d.complain("a message is not kept: its codec refuses it", why)
	return d.without(stores.ContentRefused)
}

// complain tells what is refused, once for this delivery.
func (d *Delivery) complain(text string, why error) {
	if slices.Contains(d.refused.said, text) {
		return
	}
	d.refused.said = append(d.refused.said, text)
	d.arrival.Observer.Complains(text, why)
}

// refusedBefore deals with a refusal of the codec that meets a message which had failed for
// good, or was discarded, before this delivery. c is what its row says if nothing will ever
// be kept of it; otherwise the delivery goes on with n.
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

// notQuarantined decides what becomes of a message that the codec does not take, for now at
// least, and that was to go to quarantine: it may be given back as failed, for the broker
// counts that, and may take it aside. Otherwise the codec is asked again, unless
// refused.unkept says that it will not be.
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

// unkept ends the time in which the codec is asked for a message in quarantine, if nobody
// counts how often that was in vain. It reports false if it may be asked by a later delivery.
func (d *Delivery) unkept(why error) bool {
	if !errors.Is(why, errNotEncoded) {
		return false
	}
	switch {
	case d.arrival.Retry != nil:
		d.refused.unkept = !d.stopping() && d.row.state.Age >= d.arrival.Policy.Age
	case d.brokerHasIt():
		d.refused.unkept = !d.stopping() && d.arrival.Origin.Count == 0
	default: // nobody else has it
		d.refused.unkept = true
	}
	return d.refused.unkept
}
