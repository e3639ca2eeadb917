package dynamodb

import (
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
)

// What was carried out is found by what it has written, whatever is heard of it and whatever the service
// remembers.

// unheard loses the answers to all tries of a request.
func unheard() []fault { return slices.Repeat([]fault{loseAnswer}, maxTries) }

// forgets sends a transaction as the first with its token.
var forgets = rewrites(func(body map[string]any) { body["ClientRequestToken"] = hex.EncodeToString(newOwn()) })

// lostWays are what becomes of a transaction that is carried out.
func lostWays() map[string][]fault {
	return map[string][]fault{
		"no answer":               unheard(),
		"its token is forgotten":  {loseAnswer, forgets},
		"an error after it":       {doesAndSays(http.StatusInternalServerError, exception("InternalServerError"))},
		"conflicts, and then one": {conflicts, conflicts, loseAnswer},
	}
}

// dead is an output that was refused for good.
func (b *bench) dead(t *testing.T, id string) stores.PendingOutput {
	t.Helper()
	a := b.win(t, newClaim())
	require.NoError(t, a.Emit([]stores.Output{outputOfSize(id, 1)}))
	require.NoError(t, a.Commit(t.Context()))
	o := b.waiting(t)[0]
	require.NoError(t, b.Settle(t.Context(), refusal(o)))
	return o
}

func refusal(o stores.PendingOutput) stores.Settlement {
	return stores.Settlement{Refused: []stores.RefusedOutput{{Number: o.Number, CreatedAt: o.CreatedAt, Attempts: o.Attempts + 1, Error: "no", Failed: true}}}
}

// waiting are all outputs that a relay would read.
func (b *bench) waiting(t *testing.T) []stores.PendingOutput {
	t.Helper()
	buckets := make([]int64, stores.OutboxBuckets)
	for i := range buckets {
		buckets[i] = int64(i)
	}
	p, err := b.Pending(t.Context(), stores.PendingQuery{Buckets: buckets, Limit: 100, Bytes: 1 << 20})
	require.NoError(t, err)
	return p.Outputs
}

func (b *bench) audits(t *testing.T) int {
	t.Helper()
	entries, err := b.Audit(t.Context(), 0, 100)
	require.NoError(t, err)
	return len(entries)
}

func (b *bench) decide(t *testing.T, verb stores.Verb, state stores.OutputState) stores.Changed {
	t.Helper()
	done, err := b.ChangeOutputs(t.Context(), stores.OutputChange{Verb: verb, Filter: stores.OutputFilter{State: state}, Limit: 10})
	require.NoError(t, err)
	return done
}

func TestAnOperatorsDecisionThatIsNotHeardOf(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	for name, lost := range lostWays() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			f := failureOf(newClaim())
			_, err := b.Record(t.Context(), f)
			require.NoError(t, err)
			b.then(transact, lost...)
			done, err := b.Change(t.Context(), stores.Change{Verb: stores.VerbDiscard, Filter: stores.Filter{ID: f.Key.ID}, Limit: 10})
			require.NoError(t, err)
			require.Equal(t, 1, done.Changed, "a discard")

			b.dead(t, "output")
			for i, step := range []struct {
				verb stores.Verb
				in   stores.OutputState
			}{{stores.VerbRetryOutput, stores.OutputFailed}, {stores.VerbDiscardOutput, stores.OutputPending}} {
				b.then(transact, lost...)
				require.Equal(t, 1, b.decide(t, step.verb, step.in).Changed, step.verb)
				require.Equal(t, 2+i, b.audits(t), step.verb)
			}

			q := stores.Quarantined{Consumer: consumer, ID: []byte("u:" + name), Reason: stores.ReasonConflict, Payload: []byte("payload")}
			require.NoError(t, b.Quarantine(t.Context(), q))
			rows, err := b.Quarantined(t.Context(), stores.QuarantineQuery{ID: q.ID, Limit: 10})
			require.NoError(t, err)
			b.then(transact, lost...)
			require.NoError(t, b.Decide(t.Context(), stores.Decision{Verb: stores.VerbRelease, RowID: rows[0].RowID}))
			m, err := b.Find(t.Context(), stores.Key{Consumer: consumer, ID: stores.ReleasedID(rows[0].RowID)})
			require.NoError(t, err)
			require.Equal(t, "payload", string(m.Payload))
			require.Equal(t, 4, b.audits(t))
		})
	}
}

// A decision that arrives when its caller has given up, and what it was about has changed.
func TestAnOperatorsDecisionThatArrivesLate(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	b := newBench(t)
	b.dead(t, "output")
	b.then(transact, slices.Repeat([]fault{delay}, maxTries)...)
	retry := stores.OutputChange{Verb: stores.VerbRetryOutput, Filter: stores.OutputFilter{State: stores.OutputFailed}, Limit: 10}
	_, err := b.ChangeOutputs(t.Context(), retry)
	require.ErrorIs(t, err, stores.ErrUnavailable)
	b.then(transact)
	require.Equal(t, 1, b.decide(t, stores.VerbRetryOutput, stores.OutputFailed).Changed)
	require.NoError(t, b.Settle(t.Context(), refusal(b.waiting(t)[0])))
	b.arrive(t)
	require.Empty(t, b.waiting(t), "it is a dead letter of a later refusal")
	require.Equal(t, 1, b.audits(t))
}

// The answer to a settlement is lost, an operator decides, and the relay repeats it.
func TestASettlementThatIsRepeatedAfterADecision(t *testing.T) {
	b := newBench(t)
	settle := func(t *testing.T, o stores.PendingOutput) {
		t.Helper()
		b.then(transact, slices.Repeat([]fault{delay}, maxTries)...)
		require.ErrorIs(t, b.Settle(t.Context(), refusal(o)), stores.ErrUnavailable)
		b.then(transact)
		require.Contains(t, b.arrive(t), http.StatusOK)
	}
	t.Run("a retry stays", func(t *testing.T) {
		a := b.win(t, newClaim())
		require.NoError(t, a.Emit([]stores.Output{outputOfSize("retried", 1)}))
		require.NoError(t, a.Commit(t.Context()))
		o := b.waiting(t)[0]
		settle(t, o)
		require.Equal(t, 1, b.decide(t, stores.VerbRetryOutput, stores.OutputFailed).Changed)
		require.NoError(t, b.Settle(t.Context(), refusal(o)))
		again := b.waiting(t)
		require.Len(t, again, 1, "it was retried after it was refused")
		require.Equal(t, o.Number, again[0].Number)
		require.Zero(t, again[0].Attempts)
		require.NoError(t, b.Settle(t.Context(), stores.Settlement{Published: []int64{again[0].Number}, CreatedAt: []time.Time{again[0].CreatedAt}}))
		require.Empty(t, b.waiting(t))
	})
	t.Run("what was discarded does not return", func(t *testing.T) {
		for _, s := range []func(stores.PendingOutput) stores.Settlement{
			refusal,
			func(o stores.PendingOutput) stores.Settlement {
				return stores.Settlement{Published: []int64{o.Number}, CreatedAt: []time.Time{o.CreatedAt}, Keep: true}
			},
		} {
			a := b.win(t, newClaim())
			require.NoError(t, a.Emit([]stores.Output{outputOfSize("discarded", 1)}))
			require.NoError(t, a.Commit(t.Context()))
			o := b.waiting(t)[0]
			b.then(transact, func(f *faults, r *http.Request) (*http.Response, error) { // it has read the output
				require.Equal(t, 1, b.decide(t, stores.VerbDiscardOutput, stores.OutputPending).Changed)
				return f.HTTPClient.Do(r)
			})
			require.NoError(t, b.Settle(t.Context(), s(o)))
			for _, state := range slices.Collect(maps.Keys(outputKinds)) {
				n, _, err := b.MatchingOutputs(t.Context(), stores.OutputFilter{State: state}, 10)
				require.NoError(t, err)
				require.Zero(t, n, state)
			}
		}
	})
}

// A program publishes, and hears nothing of it.
func TestAPublicationThatIsNotHeardOf(t *testing.T) {
	b := newBench(t)
	once := types.Put{TableName: &b.mirror.effects, Item: item{"id": str("once"), "key": str("once")}, ConditionExpression: aws.String("attribute_not_exists(id)")}
	for name, lost := range lostWays() {
		t.Run(name, func(t *testing.T) {
			b.then(transact, lost...)
			require.NoError(t, b.Transact(t.Context(), func(tx *Tx) error {
				return tx.emit([]stores.Output{outputOfSize(name, 1)})
			}))
			require.Contains(t, b.pending(t), name)
		})
	}
	t.Run("without an output that proves it", func(t *testing.T) {
		b.then(transact, loseAnswer, forgets)
		err := b.Transact(t.Context(), func(tx *Tx) error { return tx.Put(t.Context(), once) })
		require.ErrorIs(t, err, stores.ErrUnavailable, "it was committed")
		require.NotErrorIs(t, err, stores.ErrTxContended)
		require.Equal(t, 1, b.effects(t, "once"))
	})
}

func TestRecordsThatAreNotHeardOf(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	b := newBench(t)
	f := failureOf(newClaim())
	b.then("PutItem", append([]fault{nil}, unheard()...)...)
	version, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	f.Version, f.Content, f.Start, f.Holder, f.DueIn = version, nil, true, "holder", time.Minute
	b.then("PutItem", unheard()...)
	version, err = b.Record(t.Context(), f)
	require.NoError(t, err)

	step := stores.Step{Name: "step", Result: []byte("result")}
	for _, lost := range lostWays() {
		b.then(transact, lost...)
		require.NoError(t, b.RecordStep(t.Context(), stores.HeldLease{Key: f.Key, Version: version, Holder: "holder"}, step))
	}
	b.then("PutItem", unheard()...)
	c := newClaim()
	c.Key, c.Take = f.Key, version
	require.Zero(t, b.completed(t, c))
}

// How often a message came to the quarantine is counted once for each time.
func TestTheQuarantineCountsOnce(t *testing.T) {
	b := newBench(t)
	q := stores.Quarantined{Consumer: consumer, ID: []byte("u:id"), Reason: stores.ReasonConflict, Payload: []byte("payload")}
	require.NoError(t, b.Quarantine(t.Context(), q))
	b.then("UpdateItem", loseAnswer, loseAnswer)
	require.NoError(t, b.Quarantine(t.Context(), q))
	rows, err := b.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, 2, rows[0].Seen)
}

// stalled answers with the beginning of an answer, and is silent from then on.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (stalled) Close() error { return nil }

// A service that takes requests and never answers them, with and without the head of an answer.
func TestAServiceThatNeverAnswers(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	for name, silent := range map[string]fault{
		"no answer": func(_ *faults, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"a part of one": func(_ *faults, r *http.Request) (*http.Response, error) {
			answer, err := says(http.StatusOK, "")(nil, nil)
			answer.Body = io.NopCloser(stalled{r.Context()})
			return answer, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.patient(100 * time.Millisecond)
			b.faults.mu.Lock()
			b.faults.any = func(string) fault { return silent }
			b.faults.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the caller's own may be hours
			defer cancel()
			c := newClaim()
			_, _, err := b.Begin(ctx, c)
			require.ErrorIs(t, err, stores.ErrUnavailable)
			_, err = b.Record(ctx, failureOf(c))
			require.ErrorIs(t, err, stores.ErrUnavailable)
			a := newAttempt(b.Store, c, nil)
			effect(t, a, "silence")
			require.ErrorIs(t, a.Commit(ctx), stores.ErrCommitUnknown)
			require.NoError(t, ctx.Err(), "it ends by itself")
		})
	}
	require.Less(t, maxTries*answerWithin, 5*time.Minute, "the service forgets a token after ten")
}
