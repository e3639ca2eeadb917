package stores_test

import (
	"testing"

	"github.com/millpond-go/millpond/stores"
)

func TestStatusesAreNamed(t *testing.T) {
	t.Parallel()
	// The numbers are those of the tables, and never change.
	for status, name := range map[stores.Status]string{
		1: "processing", 2: "completed", 3: "pending", 4: "failed", 5: "discarded", 0: "unknown", 6: "unknown", 255: "unknown",
	} {
		if got := status.String(); got != name {
			t.Errorf("status %d is %q, want %q", status, got, name)
		}
		back, ok := stores.ParseStatus(name)
		if known := name != "unknown"; ok != known || known && back != status {
			t.Errorf("ParseStatus(%q) = %d, %t", name, back, ok)
		}
	}
	for _, name := range []string{"", "Pending", "pending ", "3"} {
		if back, ok := stores.ParseStatus(name); ok {
			t.Errorf("ParseStatus(%q) = %d", name, back)
		}
	}
}

func TestPlacementsContentsAndOutcomesAreNamed(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		stores.Placement(0).String():         "unknown",
		stores.PlacementParked.String():      "parked",
		stores.PlacementRedelivered.String(): "redelivered",
		stores.Placement(3).String() + "!":   "unknown!",

		stores.ContentNone.String():           "none",
		stores.ContentKept.String():           "kept",
		stores.ContentTooLarge.String():       "too_large",
		stores.ContentOff.String():            "off",
		stores.ContentOneWay.String():         "one_way",
		stores.ContentRefused.String():        "refused",
		stores.ContentErased.String():         "erased",
		stores.ContentState(7).String() + "?": "unknown?",

		stores.Claimed.String():          "claimed",
		stores.Duplicate.String():        "duplicate",
		stores.InFlight.String():         "in_flight",
		stores.Conflict.String():         "conflict",
		stores.Parked.String() + ".":     "parked.",
		stores.Final.String():            "final",
		stores.Deferred.String():         "deferred",
		stores.Behind.String():           "behind",
		stores.Claimable.String():        "claimable",
		stores.Outcome(0).String() + ":": "unknown:",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReleasedIDsAreValidAndDistinct(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, row := range []int64{1, 2, 10, 11, 1 << 62} {
		id := stores.ReleasedID(row)
		k := stores.Key{Consumer: stores.Consumer{Service: "service", Handler: "handler"}, ID: id}
		if err := k.Validate(); err != nil || seen[string(id)] {
			t.Errorf("ReleasedID(%d) = %q, %v", row, id, err)
		}
		seen[string(id)] = true
	}
}
