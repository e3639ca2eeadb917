// Package sqlstore is what the SQL stores share: table names, schema versions, the
// stored form of metadata, the state of an attempt, and how rows and conditions of
// database/sql are read and put together. It imports no driver.
package sqlstore
