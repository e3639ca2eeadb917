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
var errNotCounted = errors.New("postgres: only the rows of INSERT, UPDATE, DELETE, MERGE and SELECT can be counted")

// counted returns a statement that runs sql and fails unless it returns or changes that many
// rows. A failure prevents the COMMIT after it.
func counted(sql string, rows int64) (string, error) {
	verb, returning := verbOf(sql)
	var text strings.Builder
	text.WriteString("WITH millpond_rows AS (\n")
	text.WriteString(strings.TrimRight(sql, "; \t\r\n"))
	switch verb {
	case "SELECT", "VALUES":
	case "INSERT", "UPDATE", "DELETE", "MERGE":
		if !returning {
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

// miscounted returns the actual number of rows, if a counted statement failed because of it.
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

// verbOf returns the verb of a statement, after its WITH if it has one, and whether it returns
// rows by RETURNING.
func verbOf(sql string) (verb string, returning bool) {
	s, depth := scanner{rest: sql}, 0
	for s.rest != "" {
		switch c := s.rest[0]; {
		case !isWordByte(c):
			switch c {
			case '(':
				depth++
			case ')':
				depth--
			}
			s.skip()
		case depth == 0:
			word := strings.ToUpper(s.word())
			if verb == "" && slices.Contains(verbs, word) {
				verb = word
			}
			returning = returning || word == "RETURNING"
		default:
			s.word()
		}
	}
	return verb, returning
}

var verbs = []string{"INSERT", "UPDATE", "DELETE", "MERGE", "SELECT", "VALUES"}
