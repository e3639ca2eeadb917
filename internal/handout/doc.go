// Package handout hands messages to the consumer of a Subscribe call, waits for their settlement
// and drains them, for all broker adapters. The adapters decide what to tell the server.
package handout
