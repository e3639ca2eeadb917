package mysql

import "strings"

// unshared returns what in a statement prevents sharing its transaction with other messages,
// without values, or "". Reads and writes of rows can be shared: they cannot commit, not even
// through a function or a trigger, and leave no savepoint, variable, lock or table that the next
// message's handler would notice. The server refuses several statements in one text.
func unshared(text string, noEscapes bool) string {
	if strings.Contains(text, "/*!") || strings.Contains(text, "/*M!") {
		return "a comment that the server executes"
	}
	w := words{rest: text}
	switch first := w.next(); first {
	case "SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "VALUES", "TABLE", "(":
	case "":
		return "an empty statement"
	default:
		return first
	}
	if judge(text, noEscapes) != plain {
		return "a variable or lock of the session"
	}
	return ""
}
