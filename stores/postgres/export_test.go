package postgres

import "github.com/millpond-go/millpond/stores/postgres/internal/tables"

// What tests ask the server about, and what they hold as others would.

const LockKeyText = tables.LockKeyText

// DueStatement is the statement of Due, of a store with a registered consumer.
func (s *Store) DueStatement() string { return s.tables.DueText() }

// TakeOverStatement is the statement of a takeover, of a store with a registered
// consumer.
func (s *Store) TakeOverStatement() string { return s.tables.TakeOverText() }

// RangeStatements are those of Survey and Purge, of a store with a registered consumer.
func (s *Store) RangeStatements() (survey, purge string) { return s.tables.RangeTexts() }

// LockPrefix is what a lock key is made of beside consumer and id.
func (s *Store) LockPrefix() []byte { return s.tables.LockPrefix() }
