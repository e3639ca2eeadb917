package middleware

import (
	"errors"
	"fmt"
	"log/slog"
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
	encodings int   // by the codec
	copied    bool  // the copy of the dead letter is published
	late      error // why it was not, when its time was over
	noCopy    error // why there is none
	waits     bool  // the row says that the message has failed, and the broker keeps it
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

var errSpent = errors.New("middleware: no attempt is left; what the last one failed of is in the history")

// parkSpent parks a message again that has no attempt left and whose copy cannot be
// published now: when it is due the retry worker publishes that, and runs nothing.
func (d *delivery) parkSpent(f *stores.Failure, why error) {
	f.Status, f.Placement, f.DueIn = stores.StatusPending, stores.PlacementParked, d.policy.pause(f.Attempts)
	f.Error = noted(f.Error, "no copy yet", why)
	d.complain("a dead letter has no copy yet", why)
}

// spent reports whether the message has been parked by parkSpent. An operator who wants it
// to run again gives it a new budget.
func (r *retryRun) spent(p *RetryPolicy) bool {
	s := r.State
	again, _ := p.verdict(s.Class, s.Attempts, s.Uncounted, 0)
	return !again && counts(s.Class) && s.Attempts > 0 && !s.Presumed && r.unreadable == nil
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

func (d *delivery) complain(text string, why error) {
	d.in.log.Error("millpond: "+text, append(anys(d.attrs()), slog.String("error", printableText(why)))...)
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
