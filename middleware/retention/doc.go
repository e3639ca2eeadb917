// Package retention keeps the tables of a store small: it purges completed messages that are
// older than a window, and what else has a window of its own. Pending messages stay.
//
// A message that was purged runs again if it is delivered again, unless its broker tells when
// it has taken it. So the window has to cover whatever the broker may still deliver: see
// docs/retention.md.
package retention
