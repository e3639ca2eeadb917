// Package sqlstore is what the SQL stores share. It has the operations on their tables,
// one file each, with the texts of the statements: [Store] is the part of the contract
// that is the same on all databases. A store brings a [Database], which sends statements
// by its driver, and a [Dialect], which says what the texts differ in. It imports no
// driver. How to add an operation is in docs/adding-an-operation.md.
package sqlstore
