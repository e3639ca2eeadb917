// Package retention keeps the tables of a store small: it purges completed messages that are
// older than a window, and other rows that have windows of their own. Pending messages stay.
//
// A purged message runs again if it is delivered again, unless its broker tells when it took the
// message. So the window must cover everything that the broker may still deliver: see
// docs/retention.md.
package retention
