package sqs_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers/sqs"
)

// line stands between a client and its server. It counts requests by action, and answers
// some instead of the server, as AWS documents its errors.
type line struct {
	mu      sync.Mutex
	client  aws.HTTPClient
	count   map[string]int
	answers map[string]*answer // by action
	broken  map[string]int     // requests without an answer, by action
	seen    func(action string)
}

type answer struct {
	status int
	code   string
	left   int // -1: for ever
}

// tap puts a line before the client of a configuration.
func tap(config *sqs.Config) *line {
	l := &line{count: make(map[string]int), answers: make(map[string]*answer), broken: make(map[string]int)}
	config.SQSOptions = append(config.SQSOptions, func(o *awssqs.Options) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.client = o.HTTPClient
		o.HTTPClient = l
	})
	return l
}

// fail answers so many requests of an action with an error.
func (l *line) fail(action string, status int, code string, times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[action] = &answer{status, code, times}
}

func (l *line) heal(action string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.answers, action)
}

// requests counts those of the given actions, of all without any.
func (l *line) requests(actions ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for action, count := range l.count {
		if len(actions) == 0 || strings.Contains(strings.Join(actions, " "), action) {
			n += count
		}
	}
	return n
}

func (l *line) Do(r *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	l.mu.Lock()
	l.count[action]++
	a := l.answers[action]
	if a != nil && a.left == 0 {
		a = nil
	} else if a != nil {
		a.left--
	}
	client, seen := l.client, l.seen
	l.mu.Unlock()
	if seen != nil {
		seen(action)
	}
	if a == nil {
		response, err := client.Do(r)
		if err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.broken[action]++
		}
		return response, err
	}
	body := fmt.Sprintf(`{"__type":"com.amazonaws.sqs#%s","message":"said by the test"}`, a.code)
	return &http.Response{
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(bytes.NewReader([]byte(body))),
	}, nil
}

// logs keeps what was logged as errors and infos.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, text)
}

func (l *logs) count(word string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.lines {
		if strings.Contains(text, word) {
			n++
		}
	}
	return n
}

func (l *logs) show(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.lines {
		t.Log(text)
	}
}

func (l *line) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.count)
}
