// Package sqltx has what the attempts of all SQL stores share: the gate that the
// statements of a handler pass, what is known of its conduct beside them, and the outcome.
package sqltx
