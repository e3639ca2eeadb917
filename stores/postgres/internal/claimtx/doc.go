// Package claimtx is the transaction that holds a claim, on a pgx connection. It begins together
// with the claim, is watched, and ends with proof. The stores on pgx and on database/sql wrap it in
// different types for their handlers.
package claimtx
