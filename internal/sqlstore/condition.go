package sqlstore

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// Condition is what follows WHERE, with a ? for each of its arguments. The zero value
// holds for every row.
type Condition struct {
	Args []any

	terms []string
}

// And adds a term that must hold too, with the values of its parameters. Strings are
// bound as the database compares them byte by byte; the caller sees to that.
func (c *Condition) And(term string, args ...any) {
	c.terms = append(c.terms, term)
	c.Args = append(c.Args, args...)
}

// Clone returns a copy; what is added to it is not added to c.
func (c *Condition) Clone() *Condition {
	return &Condition{Args: slices.Clone(c.Args), terms: slices.Clone(c.terms)}
}

// String returns the text.
func (c *Condition) String() string {
	if len(c.terms) == 0 {
		return "1 = 1"
	}
	return strings.Join(c.terms, " AND ")
}

// Consumers are names of consumers by the numbers that the tables have for them.
type Consumers map[int64]stores.Consumer

// IDs returns the numbers, the smallest first.
func (c Consumers) IDs() []int64 { return slices.Sorted(maps.Keys(c)) }

// Sorted returns the consumers by their names.
func (c Consumers) Sorted() []stores.Consumer {
	return slices.SortedFunc(maps.Values(c), func(a, b stores.Consumer) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Handler, b.Handler))
	})
}
