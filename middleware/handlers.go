package middleware

// handlers has the retry policies and modes of an inbox's handlers, by their names in the router.
type handlers struct {
	retry    *policy
	policies map[string]*policy // of those that have their own
	modes    modes
	targets  targets
}

func newPolicies(own map[string]RetryPolicy) map[string]*policy {
	policies := make(map[string]*policy, len(own))
	for handler, p := range own {
		policies[handler] = newPolicy(&p)
	}
	return policies
}

// policy returns the retry policy of a handler.
func (h *handlers) policy(handler string) *policy {
	if own, ok := h.policies[handler]; ok {
		return own
	}
	return h.retry
}
