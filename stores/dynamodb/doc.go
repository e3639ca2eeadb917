// Package dynamodb is the store on Amazon DynamoDB. DynamoDB has no interactive transactions, so a
// handler adds its writes and condition checks to a [Tx], and one TransactWriteItems commits them
// with the inbox item.
//
//	store, err := dynamodb.New(ctx, dynamodb.Config{Region: "eu-central-1"})
//
// or from a URL:
//
//	store, err := dynamodb.Open(ctx, "dynamodb://?region=eu-central-1")
//
// A handler gets the transaction as its parameter from [Handler], or with [TxFromContext]. What it
// writes through another client is not in the transaction. Neither are reads: a handler repeats
// what it relies on as conditions ([Tx.Check]).
//
// # URL
//
// dynamodb:// has no host and no user: credentials come from the SDK's provider chain.
// Parameters, each at most once:
//
//	region=eu-central-1                Config.Region
//	endpoint=http://127.0.0.1:8000     Config.Endpoint
//	prefix=millpond_                   Config.TablePrefix
//	retention=720h                     Config.Retention
//	migrate=true|false                 Config.AutoMigrate (false)
//
// # What it guarantees
//
// Claims are not exclusive (stores.Capabilities.ClaimsShared): two processes that get one message
// at the same moment may both run the handler. One of them commits; nothing of the other is
// written. Under a lease one runs at a time.
//
// The condition of each write names the item's last change by a value that is never used twice. So
// the item shows the outcome of a request whose answer was lost, and a late request changes
// nothing. Leases and retries end by the dates of the service's answers, never by this machine's
// clock.
//
// A handler's outputs are written in the same transaction, and the relay of package
// middleware/outbox publishes them. A transaction has room for 99 operations and outputs together.
// Order keys, and tables in more than one region, are refused. docs/dynamodb.md says what each call
// costs, and how to live with the limits.
package dynamodb
