package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// canary is the password of the database, and in the metadata of each message.
const canary = "s3cret-canary"

// keepsSecrets looks for the canary in everything that has been told.
func (r *rig) keepsSecrets() {
	r.t.Helper()
	absent := func(text, where string) {
		r.t.Helper()
		if strings.Contains(text, canary) {
			r.t.Errorf("%s tells a secret", where)
		}
	}
	for line := range strings.Lines(r.log.String()) {
		absent(line, "the log's line "+strconv.Quote(line))
	}
	for _, s := range r.spans.Ended() {
		absent(fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Links(), s.Status()), "the span "+s.Name())
	}
	for _, m := range r.metrics() {
		absent(fmt.Sprint(m.Description, attributesOf(m)), "the metric "+m.Name)
	}
}

// points returns the counts of a metric, by the values of one attribute.
func (r *rig) points(name string, by attribute.Key) map[string]int {
	r.t.Helper()
	counts := make(map[string]int)
	add := func(set attribute.Set, n int) {
		v, _ := set.Value(by)
		counts[v.String()] += n
	}
	for _, m := range r.metrics() {
		if m.Name != name {
			continue
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, int(p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, int(p.Count))
			}
		}
	}
	return counts
}

// value returns the value of a metric of seconds.
func (r *rig) value(name string) float64 {
	r.t.Helper()
	for _, m := range r.metrics() {
		if m.Name != name {
			continue
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[float64]:
			return data.DataPoints[0].Value
		case metricdata.Gauge[float64]:
			return data.DataPoints[0].Value
		}
	}
	return 0
}

func (r *rig) metrics() []metricdata.Metrics {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(r.t, r.reader.Collect(context.Background(), &all))
	var metrics []metricdata.Metrics
	for _, scope := range all.ScopeMetrics {
		metrics = append(metrics, scope.Metrics...)
	}
	return metrics
}

// attributesOf returns the attributes of all points of a metric.
func attributesOf(m metricdata.Metrics) []attribute.Set {
	var sets []attribute.Set
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Sum[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	return sets
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*logged)(nil)

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func seconds(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}
