package sqlstore

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Dialect has what differs in one database's statements. The statements are written once, beside
// the operation that sends them, with a ? for each argument, {schema.} and {prefix} for the tables'
// names, and these words:
//
//	{now}             the time by the database's clock, in the form of its columns
//	{us} … {/us}      a time of the database in microseconds since 1970, as results have it
//	{state}           the columns that [State] reads, of a failure f
//	{changed}         the assignment that every change of a failure makes
//	{blocks}          the condition of pending failures e that block their order key
//	{inbox of f}      the join that adds the inbox row i to failures f
//	{page} … {/page}  the condition, order and limit of a page of failures f
//	{both}            failures f, with the rows that are locked together with them
//	{for update}      locks the rows that are read
//	{nowait}          the same, or fails at once
//	{free}            the same, and skips locked rows; see Refused
//	{share}           the same, with a lock that only prevents changes
//	{unless locked}   begins a statement that fails at once instead of waiting for a lock
//	{topics} {list}   the topics of a consumer as a JSON array, to read and to write
//	{again}           ends an INSERT into quarantine that may meet a row of the same message
//	{step again}      the same for a recorded step
//	{before} {after}  columns of the audit, and {until} of leases, quoted where needed
//	{if free}         ends an INSERT that inserts nothing, or fails, if its key is taken
//	{own number}      lets an INSERT into the outbox choose the numbers
//	{bytes} … {/bytes} a text that is compared byte by byte
//	{any order}       before a column: excludes an index that would need sorting
//	{empty}           no bytes
//	{size}            the size of the kept content of a failure f
//	{microseconds}    after a number: turns it into an interval
//	{smallint} {text} {boolean} {blob}  after an argument in a list of columns: its type, where needed
type Dialect struct {
	Names Names
	Words map[string]string // words that differ from usual

	// Finish turns the text into SQL; nil: it is SQL already.
	Finish func(sql string) string
	// In returns the condition that a column has one of the values, with its arguments.
	In func(column string, values []int64) (condition string, args []any)
	// Keys is In for a column with one row per value; nil: In is used. Its plan must not read whole
	// tables, even if they were small when it was made.
	Keys func(column string, values []int64) (condition string, args []any)
	// Pairs is In for pairs of values in two columns.
	Pairs func(columns [2]string, values [][2]int64) (condition string, args []any)
	// OrderKeys is In for the order keys of outputs o, each a destination, a zero byte and an order
	// key. It compares a row once, however many keys there are.
	OrderKeys func(keys [][]byte) (condition string, args []any)
	// Alone: there is one writer at a time, so no row is ever skipped as locked.
	Alone bool
	// Time returns a time as an argument that can be compared with columns.
	Time func(time.Time) any
	// Contains is the condition that the error of a failure f contains ?.
	Contains string
	// SetStatus sets the status of inbox rows to %s. The condition on their failures f follows it.
	SetStatus string
	// LockOrderKey makes other writers of the order key with this number wait until the transaction
	// ends. It is empty if transactions run one after another. OrderSlots is how many numbers there
	// are, from 0; 0: any number.
	LockOrderKey string
	OrderSlots   int64
	// Refused reports whether a statement failed because it could not lock a row at once, on a
	// database that cannot skip locked rows; nil: it can.
	Refused func(error) bool
	// Unordered: numbers may not follow the order of commits, whatever is locked. It changes if the
	// server changes.
	Unordered atomic.Bool

	once  sync.Once
	words *strings.Replacer
	fixed sync.Map // SQL of constant texts
}

// SQL returns a text's SQL.
func (d *Dialect) SQL(text string) string {
	d.once.Do(func() {
		words := maps.Clone(usual)
		maps.Copy(words, d.Words)
		pairs := make([]string, 0, 2*len(words))
		for word, sql := range words {
			pairs = append(pairs, "{"+word+"}", sql)
		}
		d.words = strings.NewReplacer(pairs...)
	})
	text = d.Names.Expand(d.words.Replace(d.words.Replace(text))) // words may contain words
	if d.Finish == nil {
		return text
	}
	return d.Finish(text)
}

// Fixed returns a constant text's SQL, which it makes once.
func (d *Dialect) Fixed(text string) string {
	if sql, ok := d.fixed.Load(text); ok {
		return sql.(string)
	}
	sql := d.SQL(text)
	d.fixed.Store(text, sql)
	return sql
}

// usual are the words of most databases.
var usual = map[string]string{
	"us": "", "/us": "",
	// A revision is reused after a million changes, when no process still has the old one.
	"changed": "revision = (revision + 1) & 1048575",
	// An overdue message that the broker has not redelivered keeps its place for OrderWait at most:
	// it may be lost.
	"blocks":       "(e.placement = 1 OR e.order_until > {now})",
	"inbox of f":   "LEFT JOIN {schema.}{prefix}inbox i ON i.consumer = f.consumer AND i.message_id = f.message_id",
	"microseconds": "", "smallint": "", "text": "", "boolean": "",
	"page": "", "/page": "",
	"both":       "{schema.}{prefix}failure f",
	"for update": "", "nowait": "", "free": "", "unless locked": "",
	"topics": "topics", "list": "?",
	"again":      "ON CONFLICT (consumer, identity_hash, fingerprint, reason) DO UPDATE SET",
	"if free":    "ON CONFLICT DO NOTHING",
	"step again": "ON CONFLICT (consumer, message_id, name) DO UPDATE SET at = excluded.at, result = excluded.result",
	"blob":       "",
	"before":     "before", "after": "after", "until": "until",
	"own number": "",
	"bytes":      "", "/bytes": "", "any order": "", "empty": "x''",
}
