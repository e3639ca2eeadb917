package nats

// Die ends a subscriber as the death of its process would: nothing that it has in hand is
// settled any more.
func (s *Subscriber) Die() {
	s.subscriptions.Each(func(sub *subscription) {
		sub.Abandon()
		sub.Stop()
	})
	_ = s.Close()
}
