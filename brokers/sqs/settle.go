package sqs

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
)

// change is an item's new visibility timeout, from now on.
type change struct {
	item       *item
	visibility time.Duration // whole seconds
}

// settling reports the results of a subscription's messages to SQS.
type settling struct {
	deletes *batcher[*item]
	returns *batcher[*item]
	leave   context.Context // for settling requests; ends some time after draining
}

// changeVisibility sends up to ten changes, and returns each one's result.
func (s *subscription) changeVisibility(ctx context.Context, changes []change) []error {
	input := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &changes[0].item.queue.url}
	for i, c := range changes {
		input.Entries = append(input.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(c.item.handle()),
			VisibilityTimeout: seconds(c.visibility),
		})
	}
	answer, err := s.subscriber.client.ChangeMessageVisibilityBatch(ctx, input)
	if err != nil {
		return s.all(len(changes), err)
	}
	return eachEntry(len(changes), answer.Failed)
}

// deleteMessages sends up to ten deletes, and returns each one's result.
func (s *subscription) deleteMessages(ctx context.Context, items []*item) []error {
	input := &sqs.DeleteMessageBatchInput{QueueUrl: &items[0].queue.url}
	for i, it := range items {
		input.Entries = append(input.Entries, types.DeleteMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(it.handle()),
		})
	}
	answer, err := s.subscriber.client.DeleteMessageBatch(ctx, input)
	if err != nil {
		return s.all(len(items), err)
	}
	return eachEntry(len(items), answer.Failed)
}

// all is the result of a request that failed as a whole.
func (s *subscription) all(n int, err error) []error {
	refresh(s.subscriber.broker.aws.Credentials, err)
	return slices.Repeat([]error{err}, n)
}

// eachEntry assigns a batch's failures to its entries.
func eachEntry(n int, failed []types.BatchResultErrorEntry) []error {
	errs := make([]error, n)
	for _, f := range failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i >= 0 && i < n {
			errs[i] = entryError(f)
		}
	}
	return errs
}

// deleteAll deletes acked messages. It tries until SQS makes them visible to others. A message of a
// group frees its slot only after the delete: an earlier receive finds the group blocked, and not
// every server answers it when the group is free.
func (s *subscription) deleteAll(items []*item) {
	grouped := 0
	for _, it := range items {
		if it.group != "" {
			grouped++
		}
	}
	defer s.release(grouped)
	s.eachQueue(items, func(items []*item) {
		s.persist("Deleting acked messages", "sqs:DeleteMessage", items, s.deleteMessages)
	})
}

// giveBackAll makes messages visible to others. Those for which that fails are redelivered after
// the visibility timeout.
func (s *subscription) giveBackAll(items []*item) {
	s.eachQueue(items, func(items []*item) {
		s.persist("Giving back messages", "sqs:ChangeMessageVisibility", items, func(ctx context.Context, items []*item) []error {
			changes := make([]change, len(items))
			for i, it := range items {
				changes[i] = change{it, it.untilFrom()}
			}
			return s.changeVisibility(ctx, changes)
		})
	})
}

// untilFrom is the timeout to set now for an item that is given back. It is rounded up, so that the
// redelivery does not come early.
func (it *item) untilFrom() time.Duration {
	if it.from.IsZero() {
		return 0
	}
	d := (time.Until(it.from) + time.Second - 1).Truncate(time.Second)
	return max(0, min(d, it.left().Truncate(time.Second)))
}

// eachQueue calls f with the items of each queue: the queue may have been created again.
func (s *subscription) eachQueue(items []*item, f func([]*item)) {
	for len(items) > 0 {
		n := 1
		for n < len(items) && items[n].queue == items[0].queue {
			n++
		}
		f(items[:n])
		items = items[n:]
	}
}

// persist sends a batch, and repeats failed items, until everything is done, refused, or no longer
// hidden.
func (s *subscription) persist(what, action string, items []*item, send func(context.Context, []*item) []error) {
	pace := outage.Pace()
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(s.settling.leave, requestTimeout)
		errs := send(ctx, items)
		cancel()
		var (
			again []*item
			last  error
		)
		for i, err := range errs {
			switch {
			case err == nil:
			case isGone(err):
				// Another consumer has it, or has deleted it. If a consumer gets it again, it finds
				// out.
				s.Logger().Debug(what+": the message was already taken back", items[i].fields())
			case isMissing(err): // its messages are gone, too
				last = err
			default:
				last = err
				if time.Now().Before(s.keeper.hiddenUntil(items[i])) {
					again = append(again, items[i])
				}
			}
		}
		if last != nil && (attempt == 1 || len(again) == 0) {
			s.Logger().Error(what+" fails", explain(action, last), watermill.LogFields{"messages": len(items), "tried_again": len(again)})
		}
		if len(again) == 0 {
			return
		}
		items = again
		if !pause.Sleep(s.settling.leave, pace.NextBackOff()) {
			return
		}
	}
}
