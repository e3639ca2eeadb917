// Package tables has what the stores on PostgreSQL share, whatever driver sends their statements:
// the tables and their migrations, failures, retries, quarantine, the registry and the operators'
// view. What depends on the driver, such as a handler's transaction, is not here.
package tables
