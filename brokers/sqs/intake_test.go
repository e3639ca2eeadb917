package sqs

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

// TestNoReceiveAfterTheEnd: slots that are free when a subscription ends, or that were
// gathered by then, are for no more receives. What these brought would have spent a
// delivery on nobody.
func TestNoReceiveAfterTheEnd(t *testing.T) {
	t.Parallel()
	const inFlight = 20
	config, err := brokers.SubscriberConfig{Group: "group", InFlight: inFlight}.WithDefaults("sqs")
	if err != nil {
		t.Fatal(err)
	}
	s := &subscription{Desk: handout.New(t.Context(), config, nil), subscriber: &Subscriber{
		broker: &Broker{config: Config{Consume: Consume{Linger: time.Hour}}}, config: config,
	}}
	s.intake.init(s)
	if n := s.intake.gather(); n != batchSize {
		t.Fatalf("%d slots, want %d", n, batchSize)
	}
	for range inFlight - batchSize - 3 {
		<-s.intake.slots
	}
	gathered := make(chan int, 1)
	go func() { gathered <- s.intake.gather() }() // three, and waits for more
	for len(s.intake.slots) > 0 {
		<-time.After(time.Millisecond)
	}
	s.Stop()
	if n := <-gathered; n != 0 || len(s.intake.slots) != 3 {
		t.Errorf("%d slots were gathered, %d are free", n, len(s.intake.slots))
	}
	for range 100 { // the choice between two that are ready is made at random
		if n := s.intake.gather(); n != 0 || len(s.intake.slots) != 3 {
			t.Fatalf("%d slots were gathered after the end, %d are free", n, len(s.intake.slots))
		}
	}
}

// TestHandlesThatAreGone knows the codes of AWS and of emulators.
func TestHandlesThatAreGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, text string
		gone       bool
	}{
		{"ReceiptHandleIsInvalid", "", true},
		{"AWS.SimpleQueueService.MessageNotInflight", "", true},
		{"InvalidParameterValue", "Value AQEB for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.", true},
		{"InvalidParameterValue", "Value 50000 for parameter VisibilityTimeout is invalid.", false},
		{"InternalError", "for parameter ReceiptHandle is invalid", false},
	} {
		err := entryError(types.BatchResultErrorEntry{Code: aws.String(c.code), Message: aws.String(c.text), SenderFault: true})
		if isGone(err) != c.gone {
			t.Errorf("%s, %q: gone is %t", c.code, c.text, !c.gone)
		}
	}
	if isGone(nil) || isGone(context.DeadlineExceeded) {
		t.Error("errors that are none of the service's speak of handles")
	}
}
