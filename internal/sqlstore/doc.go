// Package sqlstore is what the SQL stores share: table names, schema versions, the
// stored form of metadata, and the state of an attempt. It imports no driver.
package sqlstore
