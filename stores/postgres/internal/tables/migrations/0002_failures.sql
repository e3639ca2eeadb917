-- A message that has failed and is not completed has a row here beside its row in the
-- inbox. So the inbox stays narrow, and no index of this table concerns a message
-- that never fails.
CREATE TABLE {schema.}{prefix}failure (
    number      bigint   GENERATED ALWAYS AS IDENTITY,
    consumer    bigint   NOT NULL,
    revision    integer  NOT NULL DEFAULT 0, -- grows with every change of the row
    status      smallint NOT NULL,           -- as in the inbox: 3 pending, 4 failed, 5 discarded
    placement   smallint NOT NULL,           -- 1 parked, 2 redelivered
    content     smallint NOT NULL,           -- 0 none, 1 kept, 2 too large, 3 off, 4 one way, 5 refused
    presumed    boolean  NOT NULL DEFAULT false, -- an attempt was begun, its end is not known
    reserved    boolean  NOT NULL DEFAULT false, -- a retry worker has it until due_at
    suspect     boolean  NOT NULL DEFAULT false, -- one had it, and has not said what became of it
    attempts    integer  NOT NULL,
    uncounted   integer  NOT NULL,
    redrives    integer  NOT NULL DEFAULT 0,
    due_at      pg_catalog.timestamptz,                 -- of the next attempt; null if there is none
    order_until pg_catalog.timestamptz,                 -- until when others wait behind it if the broker has it
    budget_at   pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(), -- from when on the age counts
    first_at    pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at     pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id  pg_catalog.bytea    NOT NULL,
    class       pg_catalog.text     NOT NULL,
    cause pg_catalog.text     NOT NULL,
    error       pg_catalog.text     NOT NULL,
    topic       pg_catalog.text     NOT NULL,
    coordinates pg_catalog.text     NOT NULL,
    order_key   pg_catalog.bytea,
    history     pg_catalog.jsonb    NOT NULL DEFAULT '[]', -- at, class, error of each attempt, the oldest first
    codec       pg_catalog.text     NOT NULL DEFAULT '',
    uuid        pg_catalog.bytea,
    metadata    pg_catalog.bytea,
    facts       pg_catalog.bytea,            -- JSON: what the broker said of the message
    payload     pg_catalog.bytea,
    PRIMARY KEY (consumer, message_id)
);
CREATE UNIQUE INDEX {prefix}failure_number ON {schema.}{prefix}failure (number);
CREATE INDEX {prefix}failure_due ON {schema.}{prefix}failure (consumer, due_at) WHERE status = 3 AND placement = 1;
CREATE INDEX {prefix}failure_order ON {schema.}{prefix}failure (consumer, order_key, number) WHERE status = 3 AND order_key IS NOT NULL;
CREATE INDEX {prefix}failure_status ON {schema.}{prefix}failure (consumer, status, number);

ALTER TABLE {schema.}{prefix}quarantine
    ADD COLUMN codec      pg_catalog.text    NOT NULL DEFAULT '',
    ADD COLUMN one_way    boolean NOT NULL DEFAULT false, -- the codec cannot restore the message
    ADD COLUMN status     pg_catalog.text    NOT NULL DEFAULT 'held',
    ADD COLUMN decided_at pg_catalog.timestamptz;

CREATE TABLE {schema.}{prefix}audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    verb       pg_catalog.text    NOT NULL,
    actor      pg_catalog.text    NOT NULL,
    reason     pg_catalog.text    NOT NULL,
    consumer   bigint  NOT NULL,
    number     bigint  NOT NULL, -- of the failure or of the quarantine
    message_id pg_catalog.bytea,
    before     pg_catalog.text    NOT NULL,
    after      pg_catalog.text    NOT NULL
);

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (2, 1, 'failures');
