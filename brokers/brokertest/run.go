package brokertest

import "testing"

// Run runs all checks as subtests of t, and Watermill's suite twice: with one
// message in flight, and with several.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("brokertest: Harness.Open is nil: give a function that opens the broker")
	}
	h.setDefaults()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, h)
			defer e.close()
			if err := c.run(e); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("Watermill", func(t *testing.T) { runWatermill(t, h, 1) })
	t.Run("WatermillInFlight", func(t *testing.T) { runWatermill(t, h, severalInFlight) })
}

const severalInFlight = 4

// check is one question to a broker; an error is the answer no. The suite's own test relies on
// that: it asks brokers with known faults.
type check struct {
	name string
	run  func(e *env) error
}

var checks = []check{
	{"FactsOfDelivery", checkFactsOfDelivery},
	{"FactsOfRedelivery", checkFactsOfRedelivery},
	{"FactsOfKey", checkFactsOfKey},
	{"FactsTellMessagesApart", checkFactsTellMessagesApart},
	{"SuspicionEnds", checkSuspicionEnds},
	{"SubscribeContext", checkSubscribeContext},

	{"NackComesAgain", checkNackComesAgain},
	{"NackDelay", checkNackDelay},
	{"Hold", checkHold},
	{"RedeliveryIsFreshCopy", checkRedeliveryIsFreshCopy},
	{"PublishedIsCopied", checkPublishedIsCopied},

	{"DeadConsumer", checkDeadConsumer},
	{"LateAck", checkLateAck},
	{"Restart", checkRestart},

	{"InFlightLimit", checkInFlightLimit},
	{"InFlightUnderLoad", checkInFlightUnderLoad},
	{"Order", checkOrder},

	{"DeliveryLimit", checkDeliveryLimit},
	{"NoDeliveryLimit", checkNoDeliveryLimit},
	{"NotNowIsFree", checkNotNowIsFree},

	{"GroupsGetTheirOwn", checkGroupsGetTheirOwn},
	{"GroupShares", checkGroupShares},
	{"JoinAmidHandler", checkJoinAmidHandler},
	{"JoinAmidPoison", checkJoinAmidPoison},

	{"Payloads", checkPayloads},
	{"Metadata", checkMetadata},
	{"NoUUID", checkNoUUID},
	{"Foreign", checkForeign},
	{"RepeatedHeaders", checkRepeatedHeaders},
	{"Undecodable", checkUndecodable},

	{"PublishEach", checkPublishEach},

	{"CloseWaitsForHandler", checkCloseWaitsForHandler},
	{"CloseKeepsUnbegun", checkCloseKeepsUnbegun},
	{"CloseGivesUp", checkCloseGivesUp},
	{"AckAfterContextEnds", checkAckAfterContextEnds},
	{"CloseAtOnce", checkCloseAtOnce},

	{"GroupRequired", checkGroupRequired},
	{"PublisherClosed", checkPublisherClosed},
	{"SubscriberClosed", checkSubscriberClosed},

	{"RouterCloseLosesNothing", checkRouterCloseLosesNothing},
}
