package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// A message that has failed for good is kept, and copied if that is wanted, before its
// delivery is acked. A codec or a publisher may refuse that. No refusal makes the handler
// run again, and each ends.

// refusedForGood reports whether trying again cannot help.
func refusedForGood(err error) bool {
	marked, ok := errors.AsType[*classifiedError](err)
	return ok && marked.class == stores.ClassPermanent || errors.Is(err, brokers.ErrTooLarge) || errors.Is(err, brokers.ErrUnencodable)
}

// maxEncodings is how often a codec that fails is asked for one delivery, before its
// message is left to the broker.
const maxEncodings = 5

// refused is what is known of the refusals that one delivery has met.
type refused struct {
	encodings int      // by the codec
	unkept    bool     // it is asked no more, and the quarantine keeps nothing of the message
	copied    bool     // the copy of the dead letter is published
	late      error    // why it was not, when its time was over
	noCopy    error    // why there is none
	said      []string // in the log
	waits     bool     // the row says that the message has failed, and the broker keeps it
}

// notEncoded decides what becomes of a failure whose message the codec has refused. An
// error means that it is asked again.
func (d *delivery) notEncoded(f *stores.Failure, why error, acked bool) error {
	d.refused.encodings++
	asked := d.refused.encodings > maxEncodings
	switch {
	case acked && refusedForGood(why):
		return errNotKeepable
	case acked: // nobody else has it
		return why
	case f.Status == stores.StatusPending && (asked || refusedForGood(why)): // the broker has it, and the attempt counts
		d.complain("a failed message cannot be kept", why)
		f.Placement = stores.PlacementRedelivered
		f.Content = &stores.Content{State: stores.ContentNone, UUID: d.origin().uuid}
	case refusedForGood(why):
		f.Placement, f.Content = stores.PlacementRedelivered, d.notKept(why)
		f.Error = noted(f.Error, "not kept", why)
	case f.Status == stores.StatusFailed && asked:
		d.keepLater(f, why)
	default:
		return why
	}
	return nil
}

// keepLater lets the broker keep a message that has failed for good and that cannot be kept
// or copied now: its row says so, and no redelivery of it runs the handler.
func (d *delivery) keepLater(f *stores.Failure, why error) {
	d.refused.waits = true
	f.Placement = stores.PlacementRedelivered
	f.Content = &stores.Content{State: stores.ContentNone, UUID: d.origin().uuid}
	d.complain("a message that has failed for good cannot be kept or copied now, and is left to the broker", why)
}

// notKept ends a refusal of the codec: the message is nowhere any more.
func (d *delivery) notKept(why error) *stores.Content {
	d.complain("a message is not kept: its codec refuses it", why)
	return &stores.Content{State: stores.ContentRefused, UUID: d.origin().uuid}
}

// waitedEnough reports whether a retry worker has waited for a copy as long as it may: its
// reservation ends some time, and its place is wanted by others.
func (d *delivery) waitedEnough(why error) bool {
	return d.retry != nil && errors.Is(why, errNoCopy) && d.wait.held() > d.retry.reserve/8
}

// noCopy ends a refusal of the publisher of dead letters.
func (d *delivery) noCopy(f *stores.Failure, why error) {
	if d.refused.noCopy == nil {
		d.refused.noCopy = why
		d.complain("a dead letter has no copy", why)
	}
	f.Error = noted(f.Error, "no copy", why)
}

// complain logs what is refused, once for this delivery, and of many that say the same some.
func (d *delivery) complain(text string, why error) {
	if slices.Contains(d.refused.said, text) {
		return
	}
	d.refused.said = append(d.refused.said, text)
	log, kind := d.in.log, alike{consumer: d.claim.Key.Consumer, cause: text}
	if d.in.logLimit.pass(kind, func(left int) {
		log.Warn("millpond: more messages were refused in the same way than are logged",
			slog.String("consumer", kind.consumer.String()), slog.String("refusal", text),
			slog.Int("not_logged", left), slog.Duration("within", alikeWithin))
	}) {
		log.Error("millpond: "+text, append(anys(d.attrs()), slog.String("error", printableText(why)))...)
	}
}

// noted adds to what is kept of an error.
func noted(text, what string, why error) string {
	note := fmt.Sprintf(" [%s: %s]", what, cut(oneLine(printableText(why)), stores.MaxHistoryErrorBytes))
	return cut(text, stores.MaxErrorBytes-len(note)) + note
}

// patienceWith says what to do about a refusal that may pass, of a message that has failed
// for good: wait, give it back as failed, so that a broker with a limit takes it aside, or
// give up, for other brokers have none.
func (p *RetryPolicy) patienceWith(age time.Duration) (wait, giveUp bool) {
	return age < p.MaxAge, age >= 2*p.MaxAge
}

// refusedBefore deals with a refusal of the codec that meets a message which had failed for
// good, or was discarded, before this delivery. A nil error means that nothing will ever be
// kept of it, and c is what its row says then.
func (d *delivery) refusedBefore(seen stores.FailureState, why error) (c *stores.Content, reason, err error) {
	wait, giveUp := d.policy.patienceWith(seen.Age)
	switch {
	case refusedForGood(why) || giveUp:
		return d.notKept(why), nil, nil
	case wait:
		return nil, why, nil
	}
	d.end.Result = ResultGivenBack
	brokers.SetGiveBack(d.msg, brokers.GiveBack{Failed: true, After: d.policy.Backoff.Max})
	return nil, nil, fmt.Errorf("middleware: the message has failed and cannot be kept: %w", why)
}

var errNotEncoded = errors.New("middleware: the message is not kept in quarantine")

// notQuarantined decides what becomes of a message that the codec does not take, for now at
// least, and that was to go to quarantine. It reports false if the codec is to be asked again.
// An error gives the message back as failed: the broker counts that, and may take it aside.
func (d *delivery) notQuarantined(why error) (decided bool, err error) {
	d.refused.encodings++
	if d.refused.encodings <= maxEncodings || !d.brokerHasIt() || d.facts.Count == 0 || d.shutdown.Err() != nil {
		return false, nil //nolint:nilerr // it is asked again
	}
	if d.facts.Count >= d.policy.MaxUncounted {
		d.refused.unkept = true
		return true, nil
	}
	d.uncount(why)
	d.end.Result = ResultGivenBack
	brokers.SetGiveBack(d.msg, brokers.GiveBack{Failed: true, After: d.policy.pause(d.facts.Count)})
	return true, why
}

// unkept ends the time in which the codec is asked for a message in quarantine, if nobody
// counts how often that was in vain. It reports false if it may be asked by a later delivery.
func (d *delivery) unkept(why error) bool {
	if !errors.Is(why, errNotEncoded) {
		return false
	}
	switch {
	case d.retry != nil:
		d.refused.unkept = d.shutdown.Err() == nil && d.state.Age >= d.policy.MaxAge
	case d.brokerHasIt():
		d.refused.unkept = d.shutdown.Err() == nil && d.facts.Count == 0
	default: // nobody else has it
		d.refused.unkept = true
	}
	return d.refused.unkept
}
