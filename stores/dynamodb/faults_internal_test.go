package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// faults stands between a store and the server, and does to requests what DynamoDB Local never
// does to them.
type faults struct {
	aws.HTTPClient

	mu     sync.Mutex
	script map[string][]fault // by operation, one for each request
	counts map[string]int
	late   []*http.Request

	any     func(operation string) fault // for the others
	hanging sync.WaitGroup
}

// fault is what becomes of one request.
type fault func(f *faults, r *http.Request) (*http.Response, error)

var errReset = errors.New("read: connection reset by peer")

// loseAnswer lets the server carry the request out, and nobody hears of it.
func loseAnswer(f *faults, r *http.Request) (*http.Response, error) {
	response, err := f.HTTPClient.Do(r)
	if err != nil {
		return nil, err
	}
	response.Body.Close()
	return nil, errReset
}

// delay sends the request when arrive is called, and not now.
func delay(f *faults, r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	copied := r.Clone(context.WithoutCancel(r.Context()))
	copied.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	f.late = append(f.late, copied)
	f.mu.Unlock()
	return nil, errReset
}

// says answers as the service does, without asking the server.
func says(status int, body string) fault {
	return func(*faults, *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
}

// doesAndSays lets the server carry the request out, and answers otherwise.
func doesAndSays(status int, body string) fault {
	return func(f *faults, r *http.Request) (*http.Response, error) {
		if _, err := loseAnswer(f, r); !errors.Is(err, errReset) {
			return nil, err
		}
		return says(status, body)(f, r)
	}
}

func exception(name string) string {
	return fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"said by the test"}`, name)
}

func canceled(codes ...string) string {
	var reasons []string
	for _, code := range codes {
		reasons = append(reasons, fmt.Sprintf(`{"Code":%q}`, code))
	}
	return `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled","CancellationReasons":[` + strings.Join(reasons, ",") + `]}`
}

var (
	conflicts  = says(http.StatusBadRequest, canceled("TransactionConflict", "None"))
	throttles  = says(http.StatusBadRequest, exception("ThrottlingException"))
	inProgress = says(http.StatusBadRequest, exception("TransactionInProgressException"))
)

// Do implements aws.HTTPClient.
func (f *faults) Do(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	f.mu.Lock()
	if f.counts == nil {
		f.counts = make(map[string]int)
	}
	f.counts[operation]++
	var next fault
	if script := f.script[operation]; len(script) > 0 {
		next, f.script[operation] = script[0], script[1:]
	} else if f.any != nil {
		next = f.any(operation)
	}
	f.mu.Unlock()
	if next == nil {
		return f.HTTPClient.Do(r)
	}
	return next(f, r)
}

// then lets faults happen to the next requests of an operation.
func (f *faults) then(operation string, faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.script == nil {
		f.script = make(map[string][]fault)
	}
	f.script[operation] = faults
}

// requests returns how many there were since the last call, by operation.
func (f *faults) requests() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := f.counts
	f.counts = nil
	return counts
}

// arrive sends what was delayed, and returns the answers' status.
func (f *faults) arrive(t *testing.T) (status []int) {
	t.Helper()
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, r := range late {
		response, err := f.HTTPClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		status = append(status, response.StatusCode)
	}
	return status
}

// bench is a store behind faults, with a table of effects.
type bench struct {
	*Store
	*faults
	mirror *mirror
	config aws.Config
}

var consumer = stores.Consumer{Service: "dynamodb", Handler: "test"}

func newBench(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	server := testenv.DynamoDB(t)
	m := newMirror(t, server)
	config := server.Config(t)
	f := &faults{HTTPClient: config.HTTPClient}
	config.HTTPClient = f
	c := Config{AWS: &config, TablePrefix: strings.TrimSuffix(m.store.table, "inbox"), AutoMigrate: true}
	for _, change := range change {
		change(&c)
	}
	store, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	b := &bench{Store: store, faults: f, mirror: m, config: config}
	if err := store.Register(t.Context(), stores.Registration{Consumer: consumer, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	return b
}

// patient makes the store wait so long for answers.
func (b *bench) patient(within time.Duration) {
	b.client = dynamodb.NewFromConfig(b.config, func(o *dynamodb.Options) { o.HTTPClient = dated{b.faults, b.clock, within} })
}

func newClaim() stores.Claim {
	return stores.Claim{
		Key:         stores.Key{Consumer: consumer, ID: []byte(uuid.NewString())},
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte("payload")),
	}
}

// win begins an attempt.
func (b *bench) win(t *testing.T, c stores.Claim) *attempt {
	t.Helper()
	a, v, err := b.Begin(t.Context(), c)
	if err != nil || v.Outcome != stores.Claimed {
		t.Fatalf("Begin = %s, %v", v.Outcome, err)
	}
	return a.(*attempt)
}

// effects returns how often an effect was committed.
func (b *bench) effects(t *testing.T, name string) (n int) {
	t.Helper()
	if _, err := b.mirror.scan(t.Context(), b.mirror.effects, func(i item) error {
		if text(i["key"]) == name {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *bench) put(t *testing.T, i item) {
	t.Helper()
	if _, err := b.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.table, Item: i}); err != nil {
		t.Fatal(err)
	}
}
