// Package dynamodb is the store on Amazon DynamoDB, which has no interactive transaction: a
// handler adds its writes and condition checks to a [Tx], and one TransactWriteItems commits
// them with the inbox item.
//
//	store, err := dynamodb.New(ctx, dynamodb.Config{Region: "eu-central-1"})
//
// or from a URL:
//
//	store, err := dynamodb.Open(ctx, "dynamodb://?region=eu-central-1")
//
// A handler gets the builder as its parameter from [Handler], or from the message's context by
// [TxFromContext]. What it writes through a client of its own is not in the transaction, and
// what it reads is not either: what it relies on it repeats as conditions ([Tx.Check]).
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
// Claims are not exclusive (stores.Capabilities.ClaimsShared): two processes that are given one
// message at the same moment may both run the handler, and one of them commits. Nothing of the
// other is written. Under a lease one runs at a time.
//
// Each change of an item names what was seen by a value that is never used twice, so an
// answer that was lost is found out from the item, and a request that arrives late changes
// nothing. Expiry is compared by the times of the service's answers, never by this machine's clock.
//
// Outputs of a handler are written in the same transaction ([Tx] has room for 99 operations and
// outputs together), and published by the relay of package middleware/outbox. There are no order keys,
// and a table in more than one region is refused. docs/dynamodb.md says what each call costs, and how to
// live with the limits.
package dynamodb
