// Package sqlstore is shared by the SQL stores. It has the operations on their tables, one
// file each, with the texts of the statements. [Store] is the part of the contract that is
// the same on all databases. A store provides a [Database], which sends statements by its
// driver, and a [Dialect], which has the differences of the texts. The package imports no
// driver. docs/adding-an-operation.md tells how to add an operation.
package sqlstore
