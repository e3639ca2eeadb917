package official

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
)

// longestDelay is a little less than the 12 hours that SQS keeps a message hidden from
// its receive on.
const longestDelay = 12*time.Hour - time.Minute

// delivery is one arrival of a message: watermill-aws's, which it keeps until we settle
// it, and the copy that a handler gets. It has a slot.
type delivery struct {
	subscription *subscription
	inner        *message.Message
	receipt      *receipt
}

func (s *subscription) newDelivery(inner *message.Message) *delivery {
	r, _ := s.received.LoadAndDelete(inner)
	return &delivery{subscription: s, inner: inner, receipt: r.(*receipt)}
}

func (d *delivery) run() {
	s := d.subscription
	defer s.slots.Release(1)
	ctx, msg, end := d.dress()
	defer end()
	expired := time.NewTimer(time.Until(d.receipt.until))
	defer expired.Stop()
	select {
	case s.out <- msg:
	case <-expired.C: // nobody has begun it, and it is not ours any more
		d.leave()
		return
	case <-s.intake.Done():
		d.giveBack(0)
		d.leave()
		return
	}
	select {
	case <-msg.Acked():
		d.ack(msg)
	case <-msg.Nacked():
		after := brokers.GiveBackFrom(ctx).After
		if after <= 0 {
			after = s.subscriber.broker.config.Consume.RedeliveryDelay
		}
		if after > 0 {
			d.giveBack(after)
		}
		d.leave()
	case <-s.abandoned:
	}
}

// dress makes the message that the handler gets, with a context of its own.
func (d *delivery) dress() (context.Context, *message.Message, context.CancelFunc) {
	s := d.subscription
	msg := message.NewMessage(d.inner.UUID, bytes.Clone(d.inner.Payload))
	maps.Copy(msg.Metadata, d.inner.Metadata)
	ctx, cancel := context.WithCancel(d.inner.Context())
	unlink := context.AfterFunc(s.intake, cancel)
	ctx = brokers.WithDelivery(ctx, msg, d.receipt.facts)
	msg.SetContext(ctx)
	return ctx, msg, func() { unlink(); cancel() }
}

// ack lets watermill-aws delete the message, and returns when it has. Once SQS has taken
// the message back, a delete might settle what is in somebody else's hands.
func (d *delivery) ack(msg *message.Message) {
	if time.Now().Before(d.receipt.until) {
		d.inner.Ack()
		<-d.inner.Context().Done()
		return
	}
	d.subscription.logger.Info("A message is delivered again: its handler took longer than its visibility", watermill.LogFields{
		"message_uuid": msg.UUID, "visibility": d.subscription.subscriber.broker.config.Consume.Visibility.String(),
	})
	d.leave()
}

// leave lets watermill-aws forget the message without deleting it.
func (d *delivery) leave() {
	d.inner.Nack()
	<-d.inner.Context().Done()
}

// giveBack lets the message come again after some time, not when its visibility ends.
func (d *delivery) giveBack(after time.Duration) {
	s := d.subscription
	if !time.Now().Before(d.receipt.until) {
		return // somebody else may have it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.intake), answerTimeout)
	defer cancel()
	after = min(after, longestDelay)
	_, err := s.subscriber.client.ChangeMessageVisibility(ctx, &awssqs.ChangeMessageVisibilityInput{
		QueueUrl: &s.queue.URL, ReceiptHandle: &d.receipt.handle,
		VisibilityTimeout: seconds(after),
	})
	if err != nil {
		err = s.subscriber.broker.account.Explain("sqs:ChangeMessageVisibility", err)
		s.logger.Error("A nacked message comes again when its visibility ends: it cannot be changed", err, watermill.LogFields{
			"message_uuid": d.inner.UUID, "visibility": s.subscriber.broker.config.Consume.Visibility.String(), "delay": after.String(),
		})
	}
}
