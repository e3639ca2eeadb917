package tables

import (
	"log/slog"
)

// durability has the settings without which a crash of the server loses commits.
type durability struct{ fsync, synchronousCommit, fullPageWrites string }

// weakness is a setting that weakens the server's promises.
type weakness struct{ setting, value, why string }

// weaknesses ignores replicas: whether commits wait for them is the operator's choice.
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

// warn logs the settings that weaken the server's promises, by name and value.
func (d durability) warn(log *slog.Logger) {
	for _, w := range d.weaknesses() {
		log.Warn("millpond: postgres: "+w.why, slog.String(w.setting, w.value), slog.String("set it to", "on"))
	}
}

// SetLogger sets the logger for warnings, at the first use, about settings that weaken the server's
// promises. The default is slog.Default. Call it before the store is used.
func (s Store) SetLogger(l *slog.Logger) { s.t.log = l }
