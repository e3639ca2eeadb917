package crash

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
)

// must fails the test for every violation, and shows the first few in full.
func (r *result) must(t *testing.T) {
	t.Helper()
	if len(r.found) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations; replay with %s\n", len(r.found), replay(t, r.trial.Seed))
	for _, invariant := range r.invariants() {
		r.list(&b, invariant)
	}
	const shown = 4
	for _, k := range r.firstKeys(shown) {
		fmt.Fprintf(&b, "%s/%s: row %+v, failure %+v, effects %v, quarantine %v\n%s", k.consumer, k.id, r.inbox[k], r.failures[k], r.effects[k], r.keptUnder(k), tell(about(r.history, k)))
	}
	t.Error(b.String())
	if r.stuck {
		for worker := range r.trial.logs {
			log := r.trial.log(worker)
			t.Logf("worker %d:\n%s", worker, head(log[max(strings.Index(log, "SIGQUIT"), 0):], 20000))
		}
		t.Log(r.trial.system.sessions(t))
	}
}

// list writes down the first violations of an invariant.
func (r *result) list(b *strings.Builder, invariant string) {
	const shown = 10
	n := 0
	for _, v := range r.found {
		if v.invariant != invariant {
			continue
		}
		if n++; n <= shown {
			fmt.Fprintf(b, "  %s\n", v)
		}
	}
	if n > shown {
		fmt.Fprintf(b, "  %s: and %d more\n", invariant, n-shown)
	}
}

func (r *result) firstKeys(n int) []key {
	var keys []key
	for _, v := range r.found {
		if v.key != (key{}) && !slices.Contains(keys, v.key) && len(keys) < n {
			keys = append(keys, v.key)
		}
	}
	return keys
}

func (r *result) keptUnder(k key) map[subject][]quarantined {
	kept := make(map[subject][]quarantined)
	for s, q := range r.quarantine {
		if s.consumer == k.consumer && slices.ContainsFunc(q, func(q quarantined) bool { return q.id == k.id }) {
			kept[s] = q
		}
	}
	return kept
}

// invariants returns which ones were violated.
func (r *result) invariants() []string {
	set := make(map[string]bool)
	for _, v := range r.found {
		set[v.invariant] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// summary is the line of a run.
func (r *result) summary() string {
	var faults []string
	for _, kind := range slices.Sorted(maps.Keys(r.Kills)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, r.Kills[kind]))
	}
	ofServer := make(map[string]int)
	unknown := 0
	for _, e := range r.history {
		if strings.HasPrefix(e.What, saidServer) {
			ofServer[strings.TrimPrefix(e.What, "parent: ")]++
		}
		if e.unknownCommit() {
			unknown++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ofServer)) {
		faults = append(faults, fmt.Sprintf("%s %d", name, ofServer[name]))
	}
	return fmt.Sprintf("%s, seed %d: %d kills (%s); %d messages published, %d deliveries, %d nacks; "+
		"%d completed, %d failed, %d retried, %d crashed, %d in quarantine; %d unknown commits, %d of them committed; lost %d, doubled %d; %s",
		r.trial.system.name, r.trial.Seed, r.kills(), strings.Join(faults, ", "), r.Published, r.Deliveries, r.Nacks,
		len(r.inbox)-len(r.failures), len(r.failures), r.retried(), r.Exits, len(r.quarantine), unknown, r.unknownCommitted(), len(r.lost), len(r.doubled), r.Duration.Round(10*time.Millisecond))
}

// retried counts what retry workers were given.
func (r *result) retried() int {
	n := 0
	for _, e := range r.history {
		if e.What == saidAt+pointTakeoverStart {
			n++
		}
	}
	return n
}

// unknownCommitted counts the unknown commits whose run is the one that is committed.
func (r *result) unknownCommitted() int {
	n := 0
	lastRun := make(map[string]string) // by process and message
	for _, e := range inOrderOfTime(r.history) {
		at := fmt.Sprint(e.PID, e.Consumer, e.Payload)
		switch {
		case e.What == saidRun:
			lastRun[at] = e.Detail
		case e.unknownCommit():
			if slices.ContainsFunc(r.effects[key{e.Consumer, e.ID}], func(f effect) bool { return f.run == lastRun[at] }) {
				n++
			}
		}
	}
	return n
}

// kills is how many faults of a kind were inflicted, or of all kinds.
func (r *result) kills(kinds ...fleet.Kind) int {
	n := 0
	for kind, inflicted := range r.Kills {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			n += inflicted
		}
	}
	return n
}

// replay is the command that repeats a run with the same seed.
func replay(t *testing.T, seed uint64) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/seed_")
	soak := ""
	if os.Getenv(rotation.SoakVariable) != "" {
		soak = rotation.SoakVariable + "=1 " // one of the longer runs
	}
	return fmt.Sprintf("%s%s=%d go test -race -v -run '^%s$' ./internal/crash", soak, rotation.SeedVariable, seed, strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^"))
}
