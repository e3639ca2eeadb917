package urlmux_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millpond-go/millpond/internal/urlmux"
)

// host opens a URL as its host.
func host(_ context.Context, u *url.URL) (string, error) { return u.Host, nil }

func TestOpenPicksTheScheme(t *testing.T) {
	var mux urlmux.Mux[string]
	mux.Handle("pkg", "one", host)
	mux.Handle("pkg", "two", func(context.Context, *url.URL) (string, error) { return "", errors.ErrUnsupported })

	// Schemes have no case.
	for _, rawURL := range []string{"one://here/path?query", "ONE://here"} {
		if got, err := mux.Open(t.Context(), "pkg", rawURL); got != "here" || err != nil {
			t.Errorf("%s: got %q, %v", rawURL, got, err)
		}
	}
	if _, err := mux.Open(t.Context(), "pkg", "two://here"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the opener's error became %v", err)
	}
}

// TestNothingIsOpenedWithAnError: an opener that returns a nil pointer with its error has
// made a value of the interface that is not nil.
func TestNothingIsOpenedWithAnError(t *testing.T) {
	var mux urlmux.Mux[fmt.Stringer]
	mux.Handle("pkg", "one", func(context.Context, *url.URL) (fmt.Stringer, error) { return (*url.URL)(nil), errors.ErrUnsupported })
	if got, err := mux.Open(t.Context(), "pkg", "one://here"); got != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %T, %v", got, err)
	}
}

func TestOpenHandsOutAContextAndACopy(t *testing.T) {
	type key struct{}
	var mux urlmux.Mux[string]
	mux.Handle("pkg", "one", func(ctx context.Context, u *url.URL) (string, error) {
		got := fmt.Sprint(ctx.Value(key{}), u.Host)
		u.Host = "changed"
		return got, nil
	})
	ctx := context.WithValue(t.Context(), key{}, "value")
	for range 2 {
		if got, err := mux.Open(ctx, "pkg", "one://here"); got != "valuehere" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestSchemes(t *testing.T) {
	var mux urlmux.Mux[string]
	if got := mux.Schemes(); len(got) != 0 {
		t.Errorf("a new mux knows %q", got)
	}
	for _, scheme := range []string{"b", "c", "a"} {
		mux.Handle("pkg", scheme, host)
	}
	got := mux.Schemes()
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q", got)
	}
	got[0] = "changed"
	if again := mux.Schemes(); again[0] != "a" {
		t.Error("the caller's slice is the mux's")
	}
}

func TestHandleTwicePanics(t *testing.T) {
	var mux urlmux.Mux[string]
	mux.Handle("pkg", "one", host)
	defer func() {
		if says := fmt.Sprint(recover()); says != `pkg: scheme "one" is registered twice` {
			t.Errorf("the panic says %q", says)
		}
	}()
	mux.Handle("pkg", "one", host)
}

func TestUnknownScheme(t *testing.T) {
	var mux urlmux.Mux[string]
	_, err := mux.Open(t.Context(), "pkg", "here")
	if err == nil || !strings.Contains(err.Error(), "known: none") {
		t.Errorf("an empty mux returned %v", err)
	}
	mux.Handle("pkg", "two", host)
	mux.Handle("pkg", "one", host)
	_, err = mux.Open(t.Context(), "pkg", "three://user:s3cret@here?password=s3cret")
	for _, says := range []string{
		`pkg: no adapter for scheme "three"`, `import its package, for example _ "github.com/millpond-go/millpond/pkg/`, "known: one, two",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, which does not say %q", err, says)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats a secret: %v", err)
	}
}

// TestNoErrorRepeatsAPassword covers the mistakes that people make with passwords:
// characters that have to be percent-encoded. The parser's own errors quote them.
func TestNoErrorRepeatsAPassword(t *testing.T) {
	var mux urlmux.Mux[string]
	mux.Handle("pkg", "one", host)
	for _, rawURL := range []string{
		"one://user:s3cret#more@here/db",
		"one://user:s3cret/more@here/db",
		"one://user:s3cret?more@here/db",
		"one://user:s3cret%zz@here/db",
		"one://user:s3cret^@here/db",
		"one://user:s3cret\x00@here/db",
		"one://us er:s3cret@here/db",
		"one://[user:s3cret@here/db",
		"one://user:s3cret@here:s3cret/db",
		"one://user:s3cret@[::1/db",
		"one://here/%zz?password=s3cret",
		"://user:s3cret@here",
		" one://user:s3cret@here",
		"user:s3cret@here",
		"user:s3cret@tcp(here:3306)/db",
	} {
		_, err := mux.Open(t.Context(), "pkg", rawURL)
		switch {
		case err == nil:
			t.Errorf("%q was opened", rawURL)
		case strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%q: the error repeats the password: %v", rawURL, err)
		case !strings.HasPrefix(err.Error(), "pkg: "):
			t.Errorf("%q: the error does not name the package: %v", rawURL, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	var mux urlmux.Mux[string]
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			scheme := fmt.Sprintf("s%d", i)
			mux.Handle("pkg", scheme, host)
			if got, err := mux.Open(t.Context(), "pkg", scheme+"://here"); got != "here" || err != nil {
				t.Errorf("%s: got %q, %v", scheme, got, err)
			}
			_ = mux.Schemes()
		})
	}
	group.Wait()
	if n := len(mux.Schemes()); n != 8 {
		t.Errorf("%d schemes are registered, want 8", n)
	}
}
