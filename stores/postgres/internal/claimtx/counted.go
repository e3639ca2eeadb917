package claimtx

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// errNotCounted is of a statement whose rows cannot be counted by SQL.
var errNotCounted = errors.New("postgres: only the rows of INSERT, UPDATE, DELETE, MERGE and SELECT can be counted")

// counted returns a statement that fails unless sql, which it runs, returns or changes so many
// rows. What fails has no COMMIT after it.
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

// countedAs begins what the server is to take for a number, and refuses.
const countedAs = "millpond counts "

// miscounted returns how many rows there were, if that is why a counted statement has failed.
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

// verbOf returns what a statement does, after the WITH that it may have, and whether it returns
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
