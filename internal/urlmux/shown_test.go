package urlmux

import "testing"

func TestNamesThatMayBeSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"in_flight": `"in_flight"`, "CaNaRy7": "(a name that is not shown)", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "(a name that is not shown)",
	} {
		if got := ShownName(name); got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
}
