// Package brokertest proves that a broker adapter keeps the contract of package brokers. It runs
// Watermill's universal suite and its own checks: the facts of a delivery, redelivery, consumers
// that die, a server that restarts, subscribers that join and leave while handlers run, in-flight
// limits, holding, delays, delivery limits, odd content, and draining, also under Watermill's
// router.
//
// An adapter, whoever wrote it, needs one test:
//
//	func TestConformance(t *testing.T) {
//		brokertest.Run(t, brokertest.Harness{
//			Open: func(t testing.TB) brokers.Broker {
//				broker, err := memory.New(memory.Config{Capacity: 20_000})
//				if err != nil {
//					t.Fatal(err)
//				}
//				return broker
//			},
//			OldMessages: true,
//		})
//	}
//
// It does not check promises that a broker does not make in its Capabilities. The log, which -v
// shows, has one line for each check that is left out.
//
// The checks run in parallel and use their own topics and groups, so a server may be shared.
// Watermill's suite publishes up to 10,000 messages to a topic before it reads them; see
// Harness.Short.
package brokertest
