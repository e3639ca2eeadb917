// Package sqltx has what the attempts of all SQL stores share: the gate for a handler's statements,
// the record of its conduct, and the outcome.
package sqltx
