// Package claimtx is the transaction that holds a claim, on a connection of pgx: how it
// is begun together with the claim, watched, and ended with proof. The stores on a pool
// of pgx and on database/sql hand it to their handlers in different types.
package claimtx
