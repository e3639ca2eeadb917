package sqlstore_test

import (
	"slices"
	"testing"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func TestCondition(t *testing.T) {
	var c sqlstore.Condition
	if got := c.String(); got != "1 = 1" {
		t.Errorf("an empty condition is %q", got)
	}
	c.And("a = ?", 1)
	c.And("b IS NULL")
	more := c.Clone()
	more.And("c BETWEEN ? AND ?", 2, 3)
	if got := c.String(); got != "a = ? AND b IS NULL" || !slices.Equal(c.Args, []any{1}) {
		t.Errorf("it is %q of %v", got, c.Args)
	}
	if got := more.String(); got != "a = ? AND b IS NULL AND c BETWEEN ? AND ?" || !slices.Equal(more.Args, []any{1, 2, 3}) {
		t.Errorf("with more it is %q of %v", got, more.Args)
	}
}

func TestConsumerIDs(t *testing.T) {
	c := sqlstore.Consumers{7: {Service: "shop"}, 2: stores.Consumer{}, 3: stores.Consumer{}}
	if got := c.IDs(); !slices.Equal(got, []int64{2, 3, 7}) {
		t.Errorf("the numbers are %v", got)
	}
}
