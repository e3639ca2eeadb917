package tables

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Record implements stores.Failures in one round trip and one commit.
func (s Store) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	consumer, err := s.t.Known(f.Key)
	if err != nil {
		return 0, err
	}
	f, encoded, err := s.t.shared.Recordable(f)
	if err != nil {
		return 0, err
	}
	args, err := s.t.recordArgs(consumer, &f, encoded)
	if err != nil {
		return 0, err
	}
	statement := &s.t.sql.recordAgain
	if f.Version == 0 {
		statement = &s.t.sql.recordFirst
	}
	args["channel"] = nil
	if f.Status == stores.StatusPending && f.Placement == stores.PlacementParked && f.DueIn < soon && s.t.mayWake() {
		args["channel"] = s.t.channel
	}
	var (
		found                      bool
		number, revision, notified *int64
	)
	_, err = s.t.db.Send(ctx, statement.with(args, first(&found, &number, &revision, &notified)))
	if sqlState(err) == serializationFailure {
		found, err = false, nil // as the server's default isolation may be that strict
	}
	switch {
	case sqlState(err) == noRight: // on the failures only: messages that do not fail are handled
		return 0, fmt.Errorf("postgres: record: %w", err)
	case err != nil:
		return 0, s.t.shared.Explain(ctx, err)
	case !found:
		return 0, fmt.Errorf("postgres: %w: %s", stores.ErrChanged, f.Key)
	case number == nil:
		return 0, errNotParkable
	}
	return sqlstore.Version(*number, *revision), nil
}

var errNotParkable = fmt.Errorf("postgres: %w", sqlstore.ErrNotParkable)

// recordArgs returns the arguments of both statements of Record.
func (t *Tables) recordArgs(consumer int64, f *stores.Failure, encoded sqlstore.Encoded) (map[string]any, error) {
	if f.Placement == stores.PlacementParked && (f.Content == nil && f.Version == 0 || f.Content != nil && f.Content.State != stores.ContentKept) {
		return nil, errNotParkable
	}
	var dueIn *time.Duration
	if f.Status == stores.StatusPending {
		dueIn = &f.DueIn
	}
	number, revision := sqlstore.ParseVersion(f.Version)
	args := map[string]any{
		"consumer": consumer, "id": f.Key.ID, "number": number, "revision": revision, "lock": t.LockKey(consumer, f.Key.ID),
		"fingerprint": f.Fingerprint.Bytes(), "trace": sqlstore.TraceBytes(&f.TraceParent),
		"status": int16(f.Status), "placement": int16(f.Placement), "attempts": f.Attempts, "uncounted": f.Uncounted,
		"dueIn": dueIn, "orderWait": f.OrderWait, "start": f.Start,
		"holder": nil, "lapsed": f.Lapsed,
		"class": string(f.Class), "cause": f.Cause, "error": f.Error, "brief": sqlstore.Text(f.Error, stores.MaxHistoryErrorBytes),
		"topic": f.Topic, "coordinates": f.Coordinates, "order": f.OrderKey,
		"content": nil, "codec": "", "uuid": nil, "metadata": nil, "facts": nil, "payload": nil,
	}
	if f.Start && f.Holder != "" {
		args["holder"] = f.Holder
	}
	if c := f.Content; c != nil {
		args["content"], args["codec"] = int16(c.State), c.Codec
		args["uuid"], args["metadata"], args["facts"], args["payload"] = []byte(c.UUID), encoded.Metadata, encoded.Facts, c.Payload
	}
	return args, nil
}

const (
	recordFirstText = `WITH born AS (
	INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint, traceparent)
	SELECT @consumer::bigint, @id::bytea, @status::smallint, @fingerprint::bytea, @trace::bytea
	WHERE pg_try_advisory_xact_lock(@lock)
	ON CONFLICT DO NOTHING RETURNING consumer, message_id, status
)
INSERT INTO {schema.}{prefix}failure (consumer, message_id, status, placement, content, presumed, attempts, uncounted,
	due_at, order_until, class, cause, error, topic, coordinates, order_key,
	history, codec, uuid, metadata, facts, payload, holder)
SELECT consumer, message_id, status, @placement::smallint, coalesce(@content::smallint, 0), @start::boolean, @attempts::integer, @uncounted::integer,
	now() + @dueIn::interval, now() + @dueIn::interval + @orderWait::interval, @class::text, @cause::text, @error::text, @topic::text, @coordinates::text, @order::bytea,
	CASE WHEN @start THEN '[]'::jsonb ELSE jsonb_build_array(jsonb_build_object('at', now(), 'class', @class::text, 'error', @brief::text)) END,
	@codec::text, @uuid::bytea, @metadata::bytea, @facts::bytea, @payload::bytea, @holder::text
FROM born RETURNING number, revision::bigint, ` + notified

	// An attempt that began and did not end counts as a crash once the next one begins.
	recordAgainText = `WITH held AS MATERIALIZED (
	SELECT number, coalesce(@content::smallint, content) AS content FROM {schema.}{prefix}failure
	WHERE consumer = @consumer::bigint AND message_id = @id::bytea
	AND number = @number::bigint AND revision = @revision::bigint AND status = 3
	AND (NOT @lapsed::boolean OR due_at <= clock_timestamp())
	AND pg_try_advisory_xact_lock(@lock)
	FOR UPDATE SKIP LOCKED
), changed AS (
	UPDATE {schema.}{prefix}failure f SET ` + revised + `,
		status = @status::smallint, placement = @placement::smallint, content = held.content, presumed = @start::boolean, reserved = false, suspect = false, holder = @holder::text,
		attempts = @attempts::integer, uncounted = @uncounted::integer, due_at = now() + @dueIn::interval, order_until = now() + @dueIn::interval + @orderWait::interval, last_at = now(),
		budget_at = CASE WHEN f.attempts = 0 AND f.uncounted = 0 THEN now() ELSE budget_at END,
		class = @class::text, cause = @cause::text, error = @error::text,
		topic = CASE WHEN @topic::text <> '' THEN @topic::text ELSE topic END, coordinates = CASE WHEN @coordinates::text <> '' THEN @coordinates::text ELSE coordinates END,
		order_key = coalesce(@order::bytea, order_key),
		history = CASE WHEN @start AND NOT presumed THEN history
			ELSE CASE WHEN jsonb_array_length(history) < 20 THEN history ELSE history - 0 END || CASE
				WHEN @start THEN jsonb_build_object('at', last_at, 'class', 'crash')
				ELSE jsonb_build_object('at', now(), 'class', @class::text, 'error', @brief::text) END END,
		codec = CASE WHEN @content::smallint IS NULL THEN codec ELSE @codec::text END,
		uuid = CASE WHEN @content::smallint IS NULL THEN uuid ELSE @uuid::bytea END,
		metadata = CASE WHEN @content::smallint IS NULL THEN metadata ELSE @metadata::bytea END,
		facts = CASE WHEN @content::smallint IS NULL THEN facts ELSE @facts::bytea END,
		payload = CASE WHEN @content::smallint IS NULL THEN payload ELSE @payload::bytea END
	FROM held WHERE f.number = held.number AND (@placement <> 1 OR held.content = 1)
	RETURNING f.number, f.revision::bigint, f.consumer, f.order_key, f.status
), gone AS (
	SELECT consumer, order_key, number FROM changed WHERE status <> 3
), ` + nextInOrder + `, marked AS (
	UPDATE {schema.}{prefix}inbox i SET status = @status
	FROM changed WHERE i.consumer = @consumer AND i.message_id = @id AND i.status <> @status
)
SELECT changed.number, changed.revision, ` + notified + ` FROM held LEFT JOIN changed ON true`
)
