package sqlstore_test

import (
	"testing"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

func TestDialect(t *testing.T) {
	d := &sqlstore.Dialect{
		Names:  sqlstore.Names{Schema: "main", Prefix: "pre_"},
		Words:  map[string]string{"now": "clock()", "age": "{now} - at", "free": " SKIP"},
		Finish: func(sql string) string { return sql + ";" },
	}
	const text = "SELECT {age} FROM {schema.}{prefix}inbox{free}"
	for range 2 {
		if got, want := d.Fixed(text), "SELECT clock() - at FROM main.pre_inbox SKIP;"; got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}

func TestConditionOnWhatNoColumnHolds(t *testing.T) {
	for _, value := range []string{"\xff", "a\x00"} {
		var c sqlstore.Condition
		c.And("topic = ?", value)
		if got := c.String(); got != "1 = 0" || len(c.Args) != 0 {
			t.Errorf("it is %q of %v", got, c.Args)
		}
	}
}
