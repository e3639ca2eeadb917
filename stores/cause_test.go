package stores_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/stores"
)

func TestErrorsThatDifferInNumbersAreOneCause(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"order 17 not found", "order 18 not found", "order 1234567 not found"},
		{"user 0190163d-8694-739b-aea5-966c26f8ad91 is gone", "user 5f0c8f9e-0000-4000-8000-000000000001 is gone"},
		{"dial tcp 10.0.0.1:5432: refused", "dial tcp 10.0.12.255:15432: refused"},
		{"at 2026-01-02T03:04:05Z", "at 2027-12-31T23:59:59Z"},
		{"key=a1b2c3", "key=d4e5f6a7"},
		{"ERROR: deadlock (SQLSTATE 40P01)", "ERROR: deadlock (SQLSTATE 40001)"},
	} {
		for _, text := range same[1:] {
			if a, b := stores.CauseOf(stores.ClassTransient, same[0]), stores.CauseOf(stores.ClassTransient, text); a != b {
				t.Errorf("%q is in cause %s and %q in %s, want one", same[0], a, text, b)
			}
		}
	}
}

func TestErrorsThatSayDifferentThingsAreNotOneCause(t *testing.T) {
	t.Parallel()
	type failure struct {
		class stores.Class
		text  string
	}
	seen := make(map[string]failure)
	for _, f := range []failure{
		{stores.ClassTransient, ""},
		{stores.ClassPermanent, ""},
		{stores.ClassTransient, "order not found"},
		{stores.ClassPermanent, "order not found"},
		{stores.ClassTransient, "Order not found"},
		{stores.ClassTransient, "order # not found"},
		{stores.ClassTransient, "order was found"},
		{stores.ClassTransient, "\xff"},
		{stores.ClassTransient, "\x00"},
		{"transient\x00order", "not found"},
	} {
		cause := stores.CauseOf(f.class, f.text)
		if other, taken := seen[cause]; taken {
			t.Errorf("%q and %q are one cause", f, other)
		}
		seen[cause] = f
	}
}

func TestCauseOfAnything(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{12}$`)
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		class := stores.Class(rapid.String().Draw(t, "class"))
		cause := stores.CauseOf(class, text)
		if !form.MatchString(cause) || cause != stores.CauseOf(class, text) {
			t.Errorf("the cause of %q is %q", text, cause)
		}
	})
}

// An error may be as large as the message that caused it.
func TestCauseOfHugeErrorsIsCheap(t *testing.T) {
	t.Parallel()
	huge := "order not found: " + strings.Repeat("x", 100<<20)
	begun := time.Now()
	for range 20 {
		stores.CauseOf(stores.ClassTransient, huge)
	}
	if took := time.Since(begun); took > 5*time.Second { // all of it would take minutes
		t.Errorf("20 causes of an error of 100 MB took %s", took)
	}
	if stores.CauseOf(stores.ClassTransient, huge) != stores.CauseOf(stores.ClassTransient, huge+" and more") {
		t.Error("the end of a huge error decides on its cause")
	}
}
