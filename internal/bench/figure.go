package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// figure is a measured number, or unknown.
type figure float64

// unknown is what was not measured.
var unknown = figure(math.NaN())

func (f figure) known() bool { return !math.IsNaN(float64(f)) }

// MarshalJSON writes null for what is unknown.
func (f figure) MarshalJSON() ([]byte, error) {
	if !f.known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// text writes the figure with about three digits.
func (f figure) text() string {
	switch v := float64(f); {
	case !f.known():
		return "–"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// span is the middle of repeats, between which half of them lie, and how far all lie apart.
type span struct {
	Median figure `json:"median"`
	Low    figure `json:"lower_quartile"`
	High   figure `json:"upper_quartile"`
	Min    figure `json:"min"`
	Max    figure `json:"max"`
}

// spanOf is unknown if one of the values is, or there are none.
func spanOf(values []figure) span {
	if len(values) == 0 || slices.ContainsFunc(values, func(f figure) bool { return !f.known() }) {
		return span{unknown, unknown, unknown, unknown, unknown}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return span{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[(n-1)/4], sorted[n-1-(n-1)/4], sorted[0], sorted[n-1]}
}

func (s span) text() string {
	if !s.Median.known() {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", s.Median.text(), s.Low.text(), s.High.text())
}
