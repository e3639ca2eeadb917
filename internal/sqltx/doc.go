// Package sqltx has what the attempts of all SQL stores share: the gate for the statements of a
// handler, the record of its conduct, and the outcome.
package sqltx
