package postgres

import (
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

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

// ClaimStatement is the statement of a claim, of a registered consumer.
func (s *Store) ClaimStatement(c stores.Claim) (text string, args []any, err error) {
	consumer, err := s.tables.Known(c.Key)
	if err != nil {
		return "", nil, err
	}
	text, args = s.tables.Claim(consumer, &c)
	return text, args, nil
}

// LookStatements are those of a look at one message, and at several.
func (s *Store) LookStatements() (one, some string) { return s.tables.LookTexts() }

// BatchStatements are those by which a batch gives up claims and proves what it commits.
func (s *Store) BatchStatements() (unclaim, owned string) { return s.tables.BatchTexts() }

// SettleStatement is the statement that deletes outputs.
func (s *Store) SettleStatement() string { return s.tables.SettleText() }
