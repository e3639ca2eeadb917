package claimtx

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// errNotCounted: SQL cannot count the rows of this statement.
var errNotCounted = errors.New("postgres: only the rows of INSERT, UPDATE, DELETE, SELECT and VALUES can be counted, without a WITH that changes rows")

// counted returns a statement that runs sql, and fails unless it returns or changes exactly that
// many rows. A failure prevents the COMMIT after it.
func counted(sql string, rows int64) (string, error) {
	s := statementOf(sql)
	if s.changesInside {
		return "", errNotCounted
	}
	var text strings.Builder
	text.WriteString("WITH millpond_rows AS (\n")
	text.WriteString(s.text)
	switch s.verb {
	case "SELECT", "VALUES":
	case "INSERT", "UPDATE", "DELETE":
		if !s.returning {
			text.WriteString("\nRETURNING true")
		}
	default:
		return "", errNotCounted
	}
	text.WriteString("\n) SELECT CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) ")
	text.WriteString(strconv.FormatInt(rows, 10))
	text.WriteString(" THEN 1 ELSE ('" + countedAs + "' OPERATOR(pg_catalog.||) pg_catalog.count(*)::pg_catalog.text)::pg_catalog.int4 END FROM millpond_rows")
	return text.String(), nil
}

// countedAs begins a text that the server refuses to convert to a number.
const countedAs = "millpond counts "

// miscounted returns the actual number of rows if a counted statement failed because of it.
func miscounted(err error) (rows int64, ok bool) {
	const notANumber = "22P02"
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != notANumber {
		return 0, false
	}
	_, number, ok := strings.Cut(refused.Message, countedAs)
	if !ok {
		return 0, false
	}
	_, err = fmt.Sscanf(number, "%d", &rows)
	return rows, err == nil
}

// countable is what must be known about a statement to count its rows.
type countable struct {
	text          string // without what follows its last word, such as a semicolon or a comment
	verb          string // after its WITH if it has one
	returning     bool
	changesInside bool // an INSERT, UPDATE, DELETE or MERGE begins in parentheses
}

func statementOf(sql string) (c countable) {
	s, depth, end := scanner{rest: sql}, 0, 0
	opened := false // what came before is an opening parenthesis
	for s.rest != "" {
		first := s.rest[0]
		switch {
		case isWordByte(first):
			c.see(strings.ToUpper(s.word()), depth, opened)
		case isFiller(s.rest):
			s.skip()
			continue
		default:
			s.skip()
		}
		switch first {
		case '(':
			depth++
		case ')':
			depth--
		}
		opened, end = first == '(', len(sql)-len(s.rest)
	}
	c.text = sql[:end]
	return c
}

func (c *countable) see(word string, depth int, opened bool) {
	switch {
	case depth > 0:
		c.changesInside = c.changesInside || opened && slices.Contains(changes, word)
	case c.verb == "" && slices.Contains(verbs, word):
		c.verb = word
	default:
		c.returning = c.returning || word == "RETURNING"
	}
}

// isFiller reports whether text begins with something that means nothing at a statement's end.
func isFiller(text string) bool {
	return strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*") || strings.IndexByte("; \t\r\n\f\v", text[0]) >= 0
}

var (
	changes = []string{"INSERT", "UPDATE", "DELETE", "MERGE"}
	verbs   = append([]string{"SELECT", "VALUES"}, changes...)
)
