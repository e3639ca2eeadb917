package lanes_test

import (
	"slices"
	"testing"

	"github.com/millpond-go/millpond/internal/lanes"
)

func TestLanes(t *testing.T) {
	var l lanes.Lanes[int]
	if !l.Join("a", 1) || l.Join("a", 2) || l.Join("a", 3) || !l.Join("b", 4) {
		t.Error("not one of each key is under way")
	}
	if next, ok := l.Next("a"); !ok || next != 2 {
		t.Error(next, ok)
	}
	if _, ok := l.Next("b"); ok || !l.Join("b", 5) {
		t.Error("the lane is not gone")
	}
	if rest := l.Leave("a"); !slices.Equal(rest, []int{3}) || !l.Join("a", 6) {
		t.Error(rest)
	}
	if rest := l.Leave("none"); rest != nil {
		t.Error(rest)
	}
}
