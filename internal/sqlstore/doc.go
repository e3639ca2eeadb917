// Package sqlstore is what the SQL stores share. It has the operations on their tables, one file
// each, with the statements' texts. [Store] is the part of the contract that is the same on all
// databases. A store provides a [Database], which sends statements with its driver, and a
// [Dialect], which has what differs in the texts. The package imports no driver.
// docs/adding-an-operation.md tells how to add an operation.
package sqlstore
