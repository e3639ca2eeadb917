// Package tables is what the stores on PostgreSQL share, whatever driver carries their
// statements: the tables and their migrations, failures, retries, quarantine, the
// registry and the operators' view. What depends on a driver, and so the transaction
// that a handler gets, is not here.
package tables
