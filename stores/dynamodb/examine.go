package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

var _ stores.Examiner = (*Store)(nil)

// examining is one examination.
type examining struct {
	stores.Examination
	*Store

	findings []stores.Finding
}

// Examine implements stores.Examiner, with some 30 requests and the reads of Counts and
// OutputCounts. It changes nothing: it checks rights with writes whose conditions never hold.
func (s *Store) Examine(ctx context.Context, e stores.Examination) ([]stores.Finding, error) {
	x := &examining{Examination: e, Store: s}
	err := s.Validate(ctx)
	switch {
	case errors.Is(err, stores.ErrNotMigrated):
		x.add("schema")(stores.SeverityError, err.Error(), "no message can be handled", "millpond migrate up")
		return x.findings, nil
	case errors.Is(err, stores.ErrClosed), errors.Is(err, stores.ErrUnavailable) && !denied(err):
		return nil, err
	case err != nil:
		x.add("schema")(stores.SeverityError, err.Error(), "a process of this version refuses to start", "")
	}
	for _, look := range []struct {
		check string
		at    func(context.Context, sqlstore.Adder) error
	}{
		{"tables", x.tables},
		{"ttl", x.ttl},
		{"recovery", x.recovery},
		{"grants", x.grants},
		{"clock", x.clocks},
		{"overdue", x.overdue},
		{"waiting", x.waiting},
		{"outbox", x.outbox},
	} {
		add := x.add(look.check)
		if err := look.at(ctx, add); err != nil && ctx.Err() == nil {
			add(stores.SeverityNote, fmt.Sprintf("this could not be checked: %v", err), "whether it weakens a promise is unknown", "use an account that may read it")
		}
	}
	return x.findings, context.Cause(ctx)
}

func (x *examining) add(check string) sqlstore.Adder {
	return func(severity stores.Severity, what, why, fix string) {
		x.findings = append(x.findings, stores.Finding{Check: check, Severity: severity, What: what, Why: why, Fix: fix})
	}
}

func denied(err error) bool { return codeOf(err) == "AccessDeniedException" }

func (x *examining) tables(ctx context.Context, add sqlstore.Adder) error {
	for _, table := range []string{x.table, x.contents} {
		out, err := x.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
		if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
			add(stores.SeverityError, "the table "+table+" is missing", "what is kept of messages, and outputs, cannot be written", "its create-table from millpond migrate sql")
			continue
		}
		if err != nil {
			return err
		}
		is := out.Table
		if is.TableStatus != types.TableStatusActive && is.TableStatus != types.TableStatusUpdating {
			add(stores.SeverityError, fmt.Sprintf("the table %s is %s", table, is.TableStatus), "it cannot be used", "aws dynamodb wait table-exists --table-name "+table)
		}
		if p := is.ProvisionedThroughput; (is.BillingModeSummary == nil || is.BillingModeSummary.BillingMode != types.BillingModePayPerRequest) && p != nil && aws.ToInt64(p.WriteCapacityUnits) > 0 {
			add(stores.SeverityNote, fmt.Sprintf("the table %s takes %d reads and %d writes a second", table, aws.ToInt64(p.ReadCapacityUnits), aws.ToInt64(p.WriteCapacityUnits)),
				"more is throttled, and the intake pauses", "aws dynamodb update-table --billing-mode PAY_PER_REQUEST --table-name "+table)
		}
		there := make(map[string]types.IndexStatus)
		for _, index := range is.GlobalSecondaryIndexes {
			there[aws.ToString(index.IndexName)] = index.IndexStatus
		}
		for _, name := range []string{indexDue, indexList} {
			if table == x.contents {
				break
			}
			if status := there[name]; status != types.IndexStatusActive {
				add(stores.SeverityError, fmt.Sprintf("the index %s of the table %s is missing, or not active yet (%s)", name, table, status), "failed messages are neither found nor retried",
					"aws dynamodb update-table --global-secondary-index-updates, with the index as millpond migrate sql has it")
			}
		}
	}
	return nil
}

func (x *examining) ttl(ctx context.Context, add sqlstore.Adder) error {
	err := x.ttlOf(ctx, add, x.table, "completed messages are deleted by it where the URL sets retention, and so is what unknown commits leave: they stay, though the older ones count as forgotten")
	return errors.Join(err, x.ttlOf(ctx, add, x.contents, "where the URL sets retention it deletes published outputs of the history, which stay"))
}

func (x *examining) ttlOf(ctx context.Context, add sqlstore.Adder, table, why string) error {
	out, err := x.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		return err
	}
	command := func(enabled bool, attribute string) string {
		return fmt.Sprintf("aws dynamodb update-time-to-live --table-name %s --time-to-live-specification Enabled=%t,AttributeName=%s", table, enabled, attribute)
	}
	switch is := out.TimeToLiveDescription; {
	case is == nil || is.TimeToLiveStatus == types.TimeToLiveStatusDisabled || is.TimeToLiveStatus == types.TimeToLiveStatusDisabling:
		add(stores.SeverityWarning, "the time to live of the table "+table+" is off", why, command(true, "ttl"))
	case aws.ToString(is.AttributeName) != "ttl":
		add(stores.SeverityWarning, fmt.Sprintf("the time to live of the table %s goes by the attribute %q", table, aws.ToString(is.AttributeName)), why,
			command(false, aws.ToString(is.AttributeName))+", and an hour later "+command(true, "ttl"))
	}
	return nil
}

func (x *examining) recovery(ctx context.Context, add sqlstore.Adder) error {
	for _, table := range []string{x.table, x.contents} {
		out, err := x.client.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &table})
		if err != nil {
			return err
		}
		is := out.ContinuousBackupsDescription
		if is == nil || is.PointInTimeRecoveryDescription == nil || is.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus != types.PointInTimeRecoveryStatusEnabled {
			add(stores.SeverityNote, "the table "+table+" has no point-in-time recovery", "what somebody deletes by mistake is lost, and messages that were completed run again",
				"aws dynamodb update-continuous-backups --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true --table-name "+table)
		}
	}
	return nil
}

func (x *examining) clocks(ctx context.Context, add sqlstore.Adder) error {
	before := x.Now()
	if _, err := x.get(ctx, key(kindSchema, nil, nil)); err != nil {
		return err
	}
	low, high := x.clock.bounds()
	after := x.Now()
	sqlstore.FindClocks(add, before.Add(-time.Duration(high-low)*time.Microsecond), after, time.UnixMicro(low))
	return nil
}

// examined is how many waiting messages and outputs are counted at most.
const examined = 1000

func (x *examining) overdue(ctx context.Context, add sqlstore.Adder) error {
	backlog, err := x.Backlog(ctx, examined)
	due := sqlstore.Waits{}
	for _, b := range backlog {
		due = due.Plus(b.Due, b.Oldest, b.Due == examined)
	}
	sqlstore.FindOverdue(add, due, x.Overdue)
	return err
}

func (x *examining) waiting(ctx context.Context, add sqlstore.Adder) error {
	counts, err := x.Counts(ctx, examined)
	if err != nil {
		return err
	}
	by := make(map[string]sqlstore.Waits)
	for _, c := range counts {
		by[c.Status] = by[c.Status].Plus(c.N, instant(x.clock.now()).Sub(c.Oldest), c.More)
	}
	for _, status := range []string{stores.StatusPending.String(), stores.StatusFailed.String(), sqlstore.Quarantined} {
		sqlstore.FindWaiting(add, status, by[status])
	}
	return nil
}

func (x *examining) outbox(ctx context.Context, add sqlstore.Adder) error {
	counts, err := x.OutputCounts(ctx, examined, stores.OutputPending, stores.OutputFailed)
	if err != nil {
		return err
	}
	by := make(map[stores.OutputState]sqlstore.Waits)
	for _, c := range counts {
		by[c.State] = by[c.State].Plus(c.N, c.Age, c.More)
	}
	has, _, err := x.holders(ctx, "outbox")
	if err != nil {
		return err
	}
	owned, low := int64(0), x.clock.now()
	for _, units := range has {
		for _, until := range units {
			if until > low {
				owned++
			}
		}
	}
	sqlstore.FindOutbox(add, by[stores.OutputPending], x.Overdue, owned, by[stores.OutputFailed])
	return nil
}
