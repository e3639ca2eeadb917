package dynamodb

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func asks(f *faults, r *http.Request) (*http.Response, error) { return f.HTTPClient.Do(r) }

func answers(body string) fault { return says(http.StatusOK, body) }

// Local knows nothing of backups, and of no rights: the service's answers are scripted.
func TestExamination(t *testing.T) {
	b := newBench(t)
	const (
		recovers = `{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":"ENABLED"}}}`
		not      = `{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":"DISABLED"}}}`
	)
	denied := says(http.StatusBadRequest, exception("AccessDeniedException"))
	examine := func(t *testing.T, change func(e *stores.Examination)) (found []string, text string) {
		t.Helper()
		if b.faults.script["DescribeContinuousBackups"] == nil {
			b.then("DescribeContinuousBackups", answers(recovers), answers(recovers))
		}
		e := stores.Examination{Now: time.Now, Role: stores.RoleRuntime, Overdue: time.Minute}
		if change != nil {
			change(&e)
		}
		findings, err := b.Examine(t.Context(), e)
		require.NoError(t, err)
		for _, f := range findings {
			require.NotEmpty(t, f.Why)
			found = append(found, fmt.Sprint(f.Severity, " ", f.Check))
			text += f.What + "\n" + f.Fix + "\n"
		}
		b.faults.mu.Lock()
		clear(b.faults.script)
		b.faults.mu.Unlock()
		return found, text
	}
	found, text := examine(t, nil)
	require.Empty(t, found, text)

	for name, c := range map[string]struct {
		script func()
		change func(e *stores.Examination)
		want   []string
		text   string
	}{
		"time to live off": {
			func() {
				b.then("DescribeTimeToLive", answers(`{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`))
			}, nil,
			[]string{"warning ttl"},
			"aws dynamodb update-time-to-live --table-name " + b.table + " --time-to-live-specification Enabled=true,AttributeName=ttl",
		},
		"by another attribute": {
			func() {
				b.then("DescribeTimeToLive", answers(`{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"gone"}}`))
			}, nil, []string{"warning ttl"}, "Enabled=false,AttributeName=gone",
		},
		"no recovery": {
			func() { b.then("DescribeContinuousBackups", answers(recovers), answers(not)) }, nil,
			[]string{"note recovery"},
			"aws dynamodb update-continuous-backups --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true --table-name " + b.contents,
		},
		"provisioned": {
			func() {
				b.then("DescribeTable", asks, asks, answers(`{"Table":{"TableStatus":"ACTIVE","ProvisionedThroughput":{"ReadCapacityUnits":5,"WriteCapacityUnits":6}}}`))
			}, nil, []string{"note tables"}, "aws dynamodb update-table --billing-mode PAY_PER_REQUEST --table-name " + b.contents,
		},
		"no indexes": {
			func() { b.then("DescribeTable", asks, answers(`{"Table":{"TableStatus":"ACTIVE"}}`)) }, nil,
			[]string{"error tables", "error tables"},
			"the index list of the table " + b.table + " is missing",
		},
		"no content": {
			func() {
				b.then("DescribeTable", asks, asks, says(http.StatusBadRequest, exception("ResourceNotFoundException")))
			}, nil, []string{"error tables"}, "millpond migrate sql",
		},
		"rights that lack": {
			func() { b.then("UpdateItem", denied, denied); b.then("BatchWriteItem", denied) }, nil,
			[]string{"warning grants"},
			"lacks dynamodb:BatchWriteItem on " + b.contents + ", dynamodb:UpdateItem on " + b.contents + ", dynamodb:UpdateItem on " + b.table,
		},
		"rights that are too many": {
			nil, func(e *stores.Examination) { e.Role = stores.RoleReadOnly }, []string{"warning grants"}, "has dynamodb:BatchGetItem on " + b.contents,
		},
		"a clock that is wrong": {
			nil, func(e *stores.Examination) {
				e.Now = func() time.Time { return time.Now().Add(time.Hour + 30*time.Second) }
			}, []string{"warning clock"}, "differ by 1h0m",
		},
		"what may not be looked at": {
			func() { b.then("DescribeTimeToLive", denied) }, nil, []string{"note ttl"}, "AccessDenied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.script != nil {
				c.script()
			}
			found, text := examine(t, c.change)
			require.Equal(t, c.want, found, text)
			require.Contains(t, text, c.text)
		})
	}

	a := b.win(t, newClaim())
	require.NoError(t, a.Emit([]stores.Output{{ID: "output", Topic: "t"}}))
	require.NoError(t, a.Commit(t.Context()))
	f := failureOf(newClaim())
	f.DueIn = 0
	_, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	found, text = examine(t, func(e *stores.Examination) { e.Overdue = 0 })
	require.Equal(t, []string{"warning overdue", "note waiting", "warning outbox", "warning outbox"}, found, text)
	require.Contains(t, text, "64 of the 64 buckets")
	_, err = b.Lease(t.Context(), stores.LeaseRequest{Name: "outbox", Owner: "relay", Units: []int64{1}, Limit: 1, TTL: time.Minute})
	require.NoError(t, err)
	_, text = examine(t, nil)
	require.Contains(t, text, "63 of the 64 buckets")

	absent := newBench(t)
	absent.table, absent.contents = "none", "none"
	absent.known.Forget()
	findings, err := absent.Examine(t.Context(), stores.Examination{Now: time.Now, Role: stores.RoleRuntime})
	require.NoError(t, err)
	require.Len(t, findings, 1)
	require.Equal(t, "millpond migrate up", findings[0].Fix)
}
