package tables

import (
	"log/slog"
)

// durability are the server's settings without which a crash loses what was committed.
type durability struct{ fsync, synchronousCommit, fullPageWrites string }

// weakness is a setting that makes the server's promises smaller than they look.
type weakness struct{ setting, value, why string }

// weaknesses leave out what a message's commits wait for beyond the server's own disk, which
// is the operator's choice.
func (d durability) weaknesses() (found []weakness) {
	for _, w := range []weakness{
		{"fsync", d.fsync, "a crash of the server's machine can lose messages that were acked, and damage the database"},
		{"synchronous_commit", d.synchronousCommit, "a crash of the server can lose messages that were acked"},
		{"full_page_writes", d.fullPageWrites, "a crash of the server's machine can damage the database"},
	} {
		if w.value == "off" {
			found = append(found, w)
		}
	}
	return found
}

// warn says by name and value what makes the server's promises smaller than they look.
func (d durability) warn(log *slog.Logger) {
	for _, w := range d.weaknesses() {
		log.Warn("millpond: postgres: "+w.why, slog.String(w.setting, w.value), slog.String("set it to", "on"))
	}
}

// SetLogger sets who is told, at the first use, what makes the server's promises smaller
// than they look: slog.Default without it. It must be called before the store is used.
func (s Store) SetLogger(l *slog.Logger) { s.t.log = l }
