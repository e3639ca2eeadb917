package tables

import (
	"fmt"
	"strings"
)

// The server looks for functions, operators and types along the search_path, and prefers an exact
// match of the arguments to its own function with a conversion. So a role that may create objects
// in a schema of the path, such as public, could make our statements run its code with our rights.
// Every statement therefore names pg_catalog. That makes SQL hard to read, so it is written
// without, and qualified once, when the texts are made.

// qualify returns SQL text whose functions, operators and types are those of pg_catalog. It knows
// the SQL of this package: keywords are in capitals, and functions in small letters, directly
// followed by their parenthesis.
//
// OPERATOR(…) always has the same precedence, so an expression with operators of different
// precedence needs parentheses. Without them, and for syntax that looks up an operator by itself,
// qualify panics: that is a bug in this package.
func qualify(sql string) string {
	q := qualifier{rest: sql, sql: sql}
	for q.rest != "" {
		q.token()
	}
	return q.out.String()
}

type qualifier struct {
	sql, rest string
	out       strings.Builder

	last    string  // word or sign
	operand bool    // the last token can be the left side of an operator
	dot     bool    // the last token is a dot
	cast    bool    // a type must follow
	levels  []level // of parentheses; the outermost is level
	level
}

// level describes the text between two parentheses.
type level struct {
	after   string // the word before the parenthesis
	set     bool   // in a list of assignments
	assign  bool   // the next = is one
	binding string // the precedence of this expression's operators; "": none yet
}

const (
	space     = " \t\r\n"
	letters   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	wordBytes = letters + "0123456789"
	operators = "+-*/<>=~!@#%^&|"
)

// grammar are functions that are part of the grammar, which the server looks for only in
// pg_catalog.
var grammar = map[string]bool{"coalesce": true, "greatest": true, "least": true, "extract": true, "position": true}

// keywordTypes are types that are part of the grammar.
var keywordTypes = map[string]bool{"bigint": true, "integer": true, "smallint": true, "boolean": true, "interval": true, "bit": true}

// lookups are words that look for an operator by themselves.
var lookups = map[string]bool{"nullif": true, "BETWEEN": true, "LIKE": true, "ILIKE": true, "SIMILAR": true, "DISTINCT": true, "OVERLAPS": true}

func (q *qualifier) token() {
	c := q.rest[0]
	switch {
	case strings.IndexByte(space, c) >= 0:
		q.copy(1)
		return
	case strings.HasPrefix(q.rest, "--"):
		q.copy(len(before(q.rest, "\n")))
		return
	}
	if q.last == "CASE" && !strings.HasPrefix(q.rest, "WHEN") {
		q.fail("CASE of a value looks for an operator along the search_path")
	}
	last := string(c)
	switch {
	case c == '\'' || c == '"':
		if q.last == "COLLATE" {
			q.out.WriteString("pg_catalog.")
		}
		q.copy(len(before(q.rest[1:], string(c))) + 2)
		q.ended(true)
	case c == '@' && len(q.rest) > 1 && strings.IndexByte(letters, q.rest[1]) >= 0, c == '$', '0' <= c && c <= '9':
		q.copy(1 + run(q.rest[1:], wordBytes)) // an argument, or a number
		q.ended(true)
	case strings.IndexByte(letters, c) >= 0:
		last = q.rest[:run(q.rest, wordBytes)]
		q.word(last)
	case strings.HasPrefix(q.rest, "::"):
		q.copy(2)
		q.cast = true
	case strings.IndexByte(operators, c) >= 0:
		q.operator(q.rest[:run(q.rest, operators)])
	default:
		q.punctuation(c)
	}
	q.last = last
}

// ended notes the end of an operand, or of a token that is none.
func (q *qualifier) ended(operand bool) { q.operand, q.dot, q.cast = operand, false, false }

func (q *qualifier) copy(n int) {
	n = min(n, len(q.rest))
	q.out.WriteString(q.rest[:n])
	q.rest = q.rest[n:]
}

func (q *qualifier) punctuation(c byte) {
	q.copy(1)
	switch c {
	case '(', '[':
		q.levels = append(q.levels, q.level)
		q.level = level{after: q.last}
	case ')', ']':
		if len(q.levels) == 0 {
			q.fail("a parenthesis too many")
		}
		q.level, q.levels = q.levels[len(q.levels)-1], q.levels[:len(q.levels)-1]
	case ',', ';':
		q.binding, q.assign = "", q.set
	}
	q.ended(c == ')' || c == ']')
	q.dot = c == '.'
}

func (q *qualifier) word(word string) {
	next := byte(0)
	if len(q.rest) > len(word) {
		next = q.rest[len(word)]
	}
	named := q.dot || next == '.' // with its schema or table
	switch {
	case lookups[word] && !named && (word != "nullif" || next == '('), word == "IN" && q.after != "position",
		word == "USING" && strings.HasPrefix(strings.TrimLeft(q.rest[len(word):], space), "("):
		q.fail(word + " looks for an operator along the search_path")
	case q.cast && !named && !keywordTypes[word], next == '(' && !q.cast && !named && !grammar[word] && !isKeyword(word):
		q.out.WriteString("pg_catalog.")
	}
	q.copy(len(word))
	if !isKeyword(word) {
		q.ended(true)
		return
	}
	q.ended(word == "END" || word == "NULL") // of CASE
	q.binding = ""
	switch word {
	case "SET":
		q.set, q.assign = true, true
	case "FROM", "WHERE", "RETURNING":
		q.set = false
	}
}

func isKeyword(word string) bool { return word == strings.ToUpper(word) }

// bindings has the precedence of operators; all others have the same.
var bindings = map[string]string{
	"*": "product", "/": "product", "%": "product", "+": "sum", "-": "sum",
	"=": "comparison", "<": "comparison", ">": "comparison", "<=": "comparison", ">=": "comparison", "<>": "comparison",
}

func (q *qualifier) operator(op string) {
	switch {
	case op == "*" && !q.operand: // all columns
		q.copy(1)
		q.ended(true)
		return
	case op == "=" && q.assign:
		q.assign = false
		q.copy(1)
		q.ended(false)
		return
	case !q.operand:
		q.fail("an operator without a left side")
	}
	binding, ok := bindings[op]
	if !ok {
		binding = "other"
	}
	if q.binding != "" && (q.binding != binding || binding == "comparison") {
		q.fail("operators that bind differently need parentheses")
	}
	q.binding = binding
	q.out.WriteString("OPERATOR(pg_catalog." + op + ")")
	q.rest = q.rest[len(op):]
	q.ended(false)
}

func (q *qualifier) fail(reason string) {
	done := len(q.sql) - len(q.rest)
	panic(fmt.Sprintf("postgres: %s, in %q before %q", reason, q.sql[:done], q.rest))
}

// run returns how many bytes at the front of s are among those of set.
func run(s, set string) int {
	n := 0
	for n < len(s) && strings.IndexByte(set, s[n]) >= 0 {
		n++
	}
	return n
}

// before returns s up to sep, or all of s without it.
func before(s, sep string) string {
	s, _, _ = strings.Cut(s, sep)
	return s
}
