package stores_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/stores"
)

func TestFingerprintsCompareOnlyWhatIsComparable(t *testing.T) {
	t.Parallel()
	plain := stores.NewFingerprint(stores.FingerprintKey{}, []byte("payload"))
	other := stores.NewFingerprint(stores.FingerprintKey{}, []byte("payloaD"))
	keyed := stores.NewFingerprint(stores.NewFingerprintKey(1, []byte("s")), []byte("payload"))
	rotated := stores.NewFingerprint(stores.NewFingerprintKey(2, []byte("t")), []byte("payload"))
	for _, test := range []struct {
		a, b stores.Fingerprint
		want stores.Comparison
	}{
		{plain, plain, stores.Same},
		{plain, other, stores.Different},
		{plain, keyed, stores.Incomparable},
		{keyed, rotated, stores.Incomparable},
		{keyed, keyed, stores.Same},
		{stores.Fingerprint{}, stores.Fingerprint{}, stores.Incomparable},
		{plain, stores.Fingerprint{}, stores.Incomparable},
	} {
		if got := test.a.Compare(test.b); got != test.want {
			t.Errorf("%v and %v: %v, want %v", test.a, test.b, got, test.want)
		}
		back, err := stores.ParseFingerprint(test.a.Bytes())
		if err != nil || back != test.a {
			t.Errorf("%v came back as %v, %v", test.a, back, err)
		}
	}
	if _, err := stores.ParseFingerprint([]byte("short")); !errors.Is(err, stores.ErrFingerprint) {
		t.Error(err)
	}
}

func TestFingerprintHeadersDoNotRunIntoEachOther(t *testing.T) {
	t.Parallel()
	one := stores.NewFingerprint(stores.FingerprintKey{}, []byte("p"), stores.Header{Name: "ab", Value: "c"})
	two := stores.NewFingerprint(stores.FingerprintKey{}, []byte("p"), stores.Header{Name: "a", Value: "bc"})
	if one == two {
		t.Error("headers ab=c and a=bc look alike")
	}
}

func TestFingerprintHeadersDoNotRunIntoThePayload(t *testing.T) {
	t.Parallel()
	type input struct {
		headers []stores.Header
		payload string
	}
	frame := func(s string) string { return "\x00\x00\x00\x00\x00\x00\x00" + string(rune(len(s))) + s }
	one, two := stores.Header{Name: "a", Value: "b"}, stores.Header{Name: "c", Value: ""}
	inputs := []input{
		{nil, frame("a") + frame("b") + frame("c") + frame("") + "P"},
		{[]stores.Header{one}, frame("c") + frame("") + "P"},
		{[]stores.Header{one, two}, "P"},
		{[]stores.Header{two, one}, "P"},
		{[]stores.Header{one}, "P"},
		{nil, frame("a")[:7] + "\x01" + frame("a") + frame("b") + "P"}, // what is digested of the one before
	}
	for _, key := range []stores.FingerprintKey{{}, stores.NewFingerprintKey(1, []byte("s"))} {
		seen := map[stores.Fingerprint]input{}
		for _, in := range inputs {
			f := stores.NewFingerprint(key, []byte(in.payload), in.headers...)
			for before, other := range seen {
				if f.Digest == before.Digest || f.Compare(before) != stores.Different {
					t.Errorf("%s: %q and %q look alike", key, in, other)
				}
			}
			seen[f] = in
		}
	}
}

func TestFingerprintOfThePayloadAloneIsItsSHA256(t *testing.T) {
	t.Parallel()
	if f := stores.NewFingerprint(stores.FingerprintKey{}, []byte("payload")); f.Digest != sha256.Sum256([]byte("payload")) {
		t.Errorf("%x", f.Digest)
	}
}

func TestParseTraceParent(t *testing.T) {
	t.Parallel()
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if got, ok := stores.ParseTraceParent(valid); !ok || got.String() != valid {
		t.Error(got, ok)
	}
	for _, bad := range []string{
		"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", strings.ToUpper(valid), strings.Replace(valid, "00-", "01-", 1),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333x-01", valid + "-more", strings.Repeat("0", 1<<20),
	} {
		if got, ok := stores.ParseTraceParent(bad); ok || !got.IsZero() || got.String() != "" {
			t.Errorf("%.80q was taken as %v", bad, got)
		}
	}
}

func TestKeysInLogsAreQuotedAndCut(t *testing.T) {
	t.Parallel()
	key := stores.Key{Consumer: stores.Consumer{Service: "a", Handler: "b"}, ID: []byte("\x1b[31m\n" + strings.Repeat("x", 300))}
	if s := key.String(); strings.ContainsAny(s, "\x1b\n") || len(s) > 150 {
		t.Errorf("%q", s)
	}
}

func TestKeyValidate(t *testing.T) {
	t.Parallel()
	good := stores.Consumer{Service: "billing", Handler: "charge"}
	for _, key := range []stores.Key{
		{Consumer: good},
		{Consumer: good, ID: make([]byte, stores.MaxIDBytes+1)},
		{Consumer: stores.Consumer{Service: "a/b", Handler: "c"}, ID: []byte("x")},
		{Consumer: stores.Consumer{Service: "a", Handler: "c\x00"}, ID: []byte("x")},
		{Consumer: stores.Consumer{Service: "a", Handler: "\xff"}, ID: []byte("x")},
		{Consumer: stores.Consumer{Service: "a", Handler: strings.Repeat("h", 201)}, ID: []byte("x")},
		{Consumer: stores.Consumer{}, ID: []byte("x")},
	} {
		if err := key.Validate(); !errors.Is(err, stores.ErrInvalidKey) {
			t.Errorf("%v: %v", key, err)
		}
	}
	if err := (stores.Key{Consumer: good, ID: make([]byte, stores.MaxIDBytes)}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestIdentityHashMergesOnlyWhatDiffersInNothing(t *testing.T) {
	t.Parallel()
	base := stores.Quarantined{Topic: "orders", UUID: "", Metadata: map[string]string{"a": "1", "b": "2"}, Payload: []byte("p")}
	same := base
	same.Metadata = map[string]string{"b": "2", "a": "1"}
	if base.IdentityHash() != same.IdentityHash() {
		t.Error("equal messages have different hashes")
	}
	for name, change := range map[string]func(*stores.Quarantined){
		"topic":       func(q *stores.Quarantined) { q.Topic = "other" },
		"coordinates": func(q *stores.Quarantined) { q.Coordinates = "orders/0/1" },
		"uuid":        func(q *stores.Quarantined) { q.UUID = "u" },
		"metadata":    func(q *stores.Quarantined) { q.Metadata = map[string]string{"a": "12", "b": ""} },
		"payload":     func(q *stores.Quarantined) { q.Payload = []byte("q") },
		"id":          func(q *stores.Quarantined) { q.ID = []byte("p") },
	} {
		other := base
		change(&other)
		if base.IdentityHash() == other.IdentityHash() {
			t.Errorf("another %s has the same hash", name)
		}
	}
}

func TestMux(t *testing.T) {
	t.Parallel()
	var mux stores.Mux
	opened := ""
	mux.Handle("test", func(_ context.Context, u *url.URL) (stores.Store, error) {
		opened = u.Host
		return nil, nil
	})
	if _, err := mux.Open(t.Context(), "test://db"); err != nil || opened != "db" {
		t.Error(opened, err)
	}
	for _, bad := range []string{"other://user:canary@db", "://canary", "test://user:canary@[::1", ""} {
		_, err := mux.Open(t.Context(), bad)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a scheme was registered twice")
		}
	}()
	mux.Handle("test", nil)
}
