package claimtx

import "strings"

// isRows reports whether a statement that begins with this word only reads and writes rows, and
// leaves nothing in the transaction that the next message's handler would notice: no setting, no
// cursor, no savepoint.
func isRows(first string) bool {
	switch strings.ToUpper(first) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES", "TABLE", "COPY":
		return true
	}
	return false
}

// unshared returns Reading.Unshared. Locks other than row locks prevent sharing: they would be held
// until the end of the batch, and would not separate its handlers.
func unshared(sql string, r Reading) string {
	switch {
	case isWord(sql):
		return "a statement called by its name"
	case containsFold(sql, "advisory"):
		return "an advisory lock"
	case r.Rows:
		return ""
	case r.Several:
		return "several statements at once"
	}
	s := scanner{rest: sql}
	s.statement()
	if isRows(s.first) {
		return "a setting, or a table that it creates"
	}
	return strings.ToUpper(s.first)
}

func containsFold(s, word string) bool {
	for i := 0; i+len(word) <= len(s); i++ {
		if s[i]|0x20 == word[0] && strings.EqualFold(s[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
