package sqlstore

import "github.com/millpond-go/millpond/stores"

// Ruling returns the status of a message in quarantine that a verb leaves, and the one that
// it leads to; ok is false for other verbs.
func Ruling(v stores.Verb) (from, to stores.QuarantineStatus, ok bool) {
	switch v {
	case stores.VerbRelease:
		return stores.QuarantineHeld, stores.QuarantineReleased, true
	case stores.VerbReject:
		return stores.QuarantineHeld, stores.QuarantineRejected, true
	case stores.VerbReopen:
		return stores.QuarantineRejected, stores.QuarantineHeld, true
	case stores.VerbRetry, stores.VerbDiscard:
	}
	return "", "", false
}
