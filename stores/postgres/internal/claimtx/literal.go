package claimtx

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
)

var parameter = regexp.MustCompile(`\$[0-9]+`)

// Literal writes arguments into the text of a statement, for drivers that need a round trip to
// prepare a statement with arguments. It accepts the types of claims and outputs: numbers, bytes
// and strings. Everything but digits is written in a form that no setting of the session changes.
// Every $ in the text must be a parameter.
func Literal(text string, args []any) string {
	return parameter.ReplaceAllStringFunc(text, func(name string) string {
		n, err := strconv.Atoi(name[1:])
		if err != nil || n < 1 || n > len(args) {
			return name // the server reports it
		}
		switch v := args[n-1].(type) {
		case int64:
			return fmt.Sprintf("(%d)::bigint", v)
		case string:
			if _, err := strconv.ParseUint(v, 10, 64); err == nil {
				return "'" + v + "'"
			}
			return "pg_catalog.convert_from(pg_catalog.decode('" + hex.EncodeToString([]byte(v)) + "', 'hex'), 'UTF8')"
		case []byte:
			if v == nil {
				return "NULL::pg_catalog.bytea"
			}
			return "pg_catalog.decode('" + hex.EncodeToString(v) + "', 'hex')"
		}
		return name
	})
}
