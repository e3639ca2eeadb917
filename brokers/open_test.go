package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// host is a broker that knows its URL's host and nothing else.
type host string

func (host) Subscriber(brokers.SubscriberConfig) (message.Subscriber, error) {
	return nil, errors.ErrUnsupported
}

func (host) Publisher(brokers.PublisherConfig) (message.Publisher, error) {
	return nil, errors.ErrUnsupported
}

func (h host) Capabilities() brokers.Capabilities { return brokers.Capabilities{System: string(h)} }

func (host) Close() error { return nil }

func openHost(_ context.Context, u *url.URL) (brokers.Broker, error) { return host(u.Host), nil }

func TestMux(t *testing.T) {
	var mux brokers.Mux
	mux.Handle("b", openHost)
	mux.Handle("a", openHost)
	if got := mux.Schemes(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the schemes are %q", got)
	}
	broker, err := mux.Open(t.Context(), "b://here")
	if err != nil {
		t.Fatal(err)
	}
	if got := broker.Capabilities().System; got != "here" {
		t.Errorf("opened was %q", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a scheme can be registered twice")
		}
	}()
	mux.Handle("a", openHost)
}

func TestMuxErrors(t *testing.T) {
	var mux brokers.Mux
	mux.Handle("a", openHost)
	for rawURL, says := range map[string]string{
		"c://user:s3cret@here": `brokers: no adapter for scheme "c": import its package, for example _ "github.com/millpond-go/millpond/brokers/`,
		"here":                 `brokers: no adapter for scheme ""`,
		"a://user:s3cret^@h":   "brokers: the URL cannot be parsed",
		"":                     "known: a",
	} {
		broker, err := mux.Open(t.Context(), rawURL)
		if err == nil || broker != nil {
			t.Errorf("%q: got %v, %v", rawURL, broker, err)
			continue
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q: the error is %q, which does not say %q", rawURL, err, says)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error repeats a password: %v", rawURL, err)
		}
	}
}

var defaultMuxRuns atomic.Int32 // the default mux outlives a test that is run twice

func TestDefaultMux(t *testing.T) {
	scheme := fmt.Sprintf("default-mux-test-%d", defaultMuxRuns.Add(1))
	if _, err := brokers.Open(t.Context(), scheme+"://here"); err == nil {
		t.Fatal("an unregistered scheme was opened")
	}
	brokers.DefaultMux().Handle(scheme, openHost)
	if _, err := brokers.Open(t.Context(), scheme+"://here"); err != nil {
		t.Error(err)
	}
	if !slices.Contains(brokers.DefaultMux().Schemes(), scheme) {
		t.Error("the default mux does not list the scheme")
	}
}
