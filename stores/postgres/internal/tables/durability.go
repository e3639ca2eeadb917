package tables

import (
	"log/slog"
)

// durability are the server's settings without which a crash loses what was committed.
type durability struct{ fsync, synchronousCommit, fullPageWrites string }

// warn says by name and value what makes the server's promises smaller than they look.
// What a message's commits wait for beyond the server's own disk is the operator's choice.
func (d durability) warn(log *slog.Logger) {
	warning := func(name, value, text string) {
		log.Warn("millpond: postgres: "+text, slog.String(name, value), slog.String("set it to", "on"))
	}
	if d.fsync == "off" {
		warning("fsync", d.fsync, "a crash of the server's machine can lose messages that were acked, and damage the database")
	}
	if d.synchronousCommit == "off" {
		warning("synchronous_commit", d.synchronousCommit, "a crash of the server can lose messages that were acked")
	}
	if d.fullPageWrites == "off" {
		warning("full_page_writes", d.fullPageWrites, "a crash of the server's machine can damage the database")
	}
}

// SetLogger sets who is told, at the first use, what makes the server's promises smaller
// than they look: slog.Default without it. It must be called before the store is used.
func (s Store) SetLogger(l *slog.Logger) { s.t.log = l }
