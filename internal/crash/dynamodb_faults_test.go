package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/middleware"
)

// requestProxy is the network to DynamoDB, and the parts of the service that DynamoDB Local lacks:
// it loses answers and requests to write, lets some arrive after their client has given up, answers
// that there was a conflict, that a transaction is in progress and that there is too much to do, and
// has a clock that is days ahead.
type requestProxy struct {
	upstream, prefix string
	server           *httptest.Server
	transport        *http.Transport
	late             sync.WaitGroup // requests whose clients have given up

	mu     sync.Mutex
	faults dbproxy.RandomFaults
	writes uint64        // since faults was set
	opened chan struct{} // nil while nothing is frozen
	away   bool          // connections are cut as soon as they have asked for something
}

func startRequestProxy(t *testing.T, upstream, prefix string) *requestProxy {
	t.Helper()
	p := &requestProxy{upstream: upstream, prefix: prefix, transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// URL implements proxy.
func (p *requestProxy) URL() string {
	return "dynamodb://?" + url.Values{"region": {"eu-central-1"}, "endpoint": {p.server.URL}, "prefix": {p.prefix}}.Encode()
}

// SetRandomFaults implements proxy. With any fault there are answers of a busy service, too.
func (p *requestProxy) SetRandomFaults(f dbproxy.RandomFaults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.writes = f, 0
}

// CutAll implements proxy.
func (p *requestProxy) CutAll() { p.server.CloseClientConnections() }

// Redirect implements proxy.
func (*requestProxy) Redirect(string) { panic("there is one DynamoDB") }

// Freeze implements proxy. Of what is sent meanwhile and given up, every other request arrives at
// the end of it.
func (p *requestProxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened == nil {
		p.opened = make(chan struct{})
	}
}

// Thaw implements proxy.
func (p *requestProxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened != nil {
		close(p.opened)
		p.opened = nil
	}
}

func (p *requestProxy) goAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// Close implements proxy.
func (p *requestProxy) Close() error {
	p.Thaw()
	p.server.CloseClientConnections()
	p.server.Close()
	p.late.Wait()
	p.transport.CloseIdleConnections()
	return nil
}

// ServeHTTP implements http.Handler. A panic cuts the connection.
func (p *requestProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	opened, f, late := p.next(operation)
	if opened != nil {
		select {
		case <-opened:
		case <-r.Context().Done():
			if late > 0 {
				p.arriveLate(r, body, func() { <-opened })
			}
			panic(http.ErrAbortHandler)
		}
	}
	if f != nil {
		f(p, w, r, body, late)
		return
	}
	p.pass(w, r, body)
}

// next returns what happens to a request: what it must wait for, and its fault if it has one. What
// is late is late by so much, and never arrives if that is negative.
func (p *requestProxy) next(operation string) (opened chan struct{}, f requestFault, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
	rng := rand.New(rand.NewPCG(p.faults.Seed, p.writes))
	draw := rng.Float64()
	if p.away {
		return nil, cut, 0
	}
	late = time.Duration((2*rng.Float64() - 1) * float64(max(p.faults.MaxDelay, time.Millisecond)))
	if p.faults != (dbproxy.RandomFaults{}) && !strings.HasPrefix(operation, "Describe") {
		f = p.draw(operation, draw)
	}
	return p.opened, f, late
}

// requestFault is what becomes of a request.
type requestFault func(p *requestProxy, w http.ResponseWriter, r *http.Request, body []byte, late time.Duration)

func (p *requestProxy) draw(operation string, draw float64) requestFault {
	const busy = 0.02 // each
	type shared struct {
		share float64
		fault requestFault
	}
	faults := []shared{{busy, throttle}, {busy / 2, loseAnswer}}
	switch operation {
	case "TransactWriteItems":
		faults = append(faults, shared{busy, conflict}, shared{busy / 2, inProgress})
		fallthrough
	case "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem":
		faults = append(faults, shared{p.faults.LoseCommitReply, loseAnswer}, shared{p.faults.LoseCommitRequest, loseRequest},
			shared{p.faults.DelayCommitReply, delayAnswer}, shared{busy / 2, carriedOutAndFailed})
	}
	for _, f := range faults {
		if draw -= f.share; draw < 0 {
			return f.fault
		}
	}
	return nil
}

func cut(*requestProxy, http.ResponseWriter, *http.Request, []byte, time.Duration) {
	panic(http.ErrAbortHandler)
}

// loseAnswer lets the service carry the request out.
func loseAnswer(p *requestProxy, _ http.ResponseWriter, r *http.Request, body []byte, _ time.Duration) {
	if answer, err := p.forward(r.Context(), r, body); err == nil {
		answer.Body.Close()
	}
	panic(http.ErrAbortHandler)
}

// loseRequest lets half of the requests arrive, when nobody waits for them any more.
func loseRequest(p *requestProxy, _ http.ResponseWriter, r *http.Request, body []byte, late time.Duration) {
	if late > 0 {
		p.arriveLate(r, body, func() { <-time.After(late) })
	}
	panic(http.ErrAbortHandler)
}

func delayAnswer(p *requestProxy, w http.ResponseWriter, r *http.Request, body []byte, late time.Duration) {
	select {
	case <-time.After(late.Abs()):
	case <-r.Context().Done():
	}
	p.pass(w, r, body)
}

func throttle(_ *requestProxy, w http.ResponseWriter, _ *http.Request, _ []byte, _ time.Duration) {
	refuse(w, http.StatusBadRequest, "ThrottlingException", "")
}

func carriedOutAndFailed(p *requestProxy, w http.ResponseWriter, r *http.Request, body []byte, _ time.Duration) {
	if answer, err := p.forward(r.Context(), r, body); err == nil {
		answer.Body.Close()
	}
	refuse(w, http.StatusInternalServerError, "InternalServerError", "")
}

func conflict(_ *requestProxy, w http.ResponseWriter, _ *http.Request, _ []byte, _ time.Duration) {
	refuse(w, http.StatusBadRequest, "TransactionCanceledException", `,"CancellationReasons":[{"Code":"TransactionConflict"},{"Code":"None"}]`)
}

func inProgress(_ *requestProxy, w http.ResponseWriter, _ *http.Request, _ []byte, _ time.Duration) {
	refuse(w, http.StatusBadRequest, "TransactionInProgressException", "")
}

// refuse answers as the service does.
func refuse(w http.ResponseWriter, status int, exception, more string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("Date", time.Now().Add(serviceAhead).UTC().Format(http.TimeFormat))
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"said by the proxy"%s}`, exception, more)
}

// arriveLate sends a request whose client has given up.
func (p *requestProxy) arriveLate(r *http.Request, body []byte, wait func()) {
	p.late.Go(func() {
		wait()
		if answer, err := p.forward(context.WithoutCancel(r.Context()), r, body); err == nil {
			answer.Body.Close()
		}
	})
}

func (p *requestProxy) pass(w http.ResponseWriter, r *http.Request, body []byte) {
	answer, err := p.forward(r.Context(), r, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	maps.Copy(w.Header(), answer.Header)
	w.Header().Set("Date", time.Now().Add(serviceAhead).UTC().Format(http.TimeFormat))
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

func (p *requestProxy) forward(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, p.upstream+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	return p.transport.RoundTrip(out)
}

// Variants that do without what decides about transactions.

func init() { maps.Copy(variants, dynamoVariants) }

var dynamoVariants = map[string]variant{
	"unconditional": {
		rule: "a commit names the item as it was read", system: []string{"dynamodb"}, find: []string{"I1"}, with: []conduct{slow, slow, slow},
		store: func(b *backend) middleware.Store {
			b.service.change = unconditional
			return b.store
		},
	},
	"one value for all": {
		rule: "each change has a value of its own", system: []string{"dynamodb"}, find: []string{"I1", "I2", "I6"}, with: []conduct{once, once, once, slow}, rests: true, lose: 0.3,
		store: func(b *backend) middleware.Store {
			b.service.change = oneValue
			return b.store
		},
	},
	"unknown is committed": {
		rule: "a commit needs proof", system: []string{"dynamodb"}, find: []string{"I2", "I3"}, with: []conduct{defers, defers}, lose: 0.3,
		store: func(b *backend) middleware.Store { return unproven{b.store} },
	},
}

// unconditional lets each write of a message's item succeed.
func unconditional(operation string, body map[string]any) {
	for put := range putsOf(operation, body) {
		if condition, ok := put["ConditionExpression"].(string); ok {
			put["ConditionExpression"] = "(" + condition + ") OR attribute_exists(pk) OR attribute_not_exists(pk)"
		}
	}
}

// breakUnwritten leaves the audit's entry out of what an operator does to a reserved message.
func breakUnwritten(_ string, body map[string]any) {
	writes, _ := body["TransactItems"].([]any)
	body["TransactItems"] = slices.DeleteFunc(writes, func(write any) bool {
		put, _ := write.(map[string]any)["Put"].(map[string]any)
		item, _ := put["Item"].(map[string]any)
		reason, _ := item["rsn"].(map[string]any)
		return reason["S"] == breakReason
	})
	if writes == nil {
		delete(body, "TransactItems")
	}
}

// oneValue makes the values by which attempts know their own writes equal.
func oneValue(operation string, body map[string]any) {
	same := map[string]any{"B": "c2FtZQ=="}
	for put := range putsOf(operation, body) {
		if item, _ := put["Item"].(map[string]any); item["own"] != nil {
			item["own"] = same
		}
		if values, _ := put["ExpressionAttributeValues"].(map[string]any); values[":own"] != nil {
			values[":own"] = same
		}
	}
}

// putsOf yields what a request puts into the inbox's table.
func putsOf(operation string, body map[string]any) iter.Seq[map[string]any] {
	return func(yield func(map[string]any) bool) {
		writes, _ := body["TransactItems"].([]any)
		if operation == "PutItem" {
			writes = []any{map[string]any{"Put": body}}
		}
		for _, write := range writes {
			operation, _ := write.(map[string]any)
			put, _ := operation["Put"].(map[string]any)
			if table, _ := put["TableName"].(string); strings.HasSuffix(table, "inbox") && !yield(put) {
				return
			}
		}
	}
}

// requests are those of a worker's store, which a variant may change.
type requests struct {
	client *http.Client
	change func(operation string, body map[string]any) // nil: nothing
}

// Do implements aws.HTTPClient.
func (q *requests) Do(r *http.Request) (*http.Response, error) {
	if q.change == nil {
		return q.client.Do(r)
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	q.change(operation, body)
	changed, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(changed)), int64(len(changed))
	return q.client.Do(r)
}
