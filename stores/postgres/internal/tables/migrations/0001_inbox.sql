CREATE TABLE {schema.}{prefix}schema (
    version    integer PRIMARY KEY,
    compatible integer NOT NULL, -- the oldest program that can use this version
    name       pg_catalog.text NOT NULL,
    applied_at pg_catalog.timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE {schema.}{prefix}consumer (
    id             bigint PRIMARY KEY, -- made of the name
    service        pg_catalog.text NOT NULL,
    handler        pg_catalog.text NOT NULL,
    topics         pg_catalog.text[] NOT NULL DEFAULT '{}',
    registered_at  pg_catalog.timestamptz NOT NULL DEFAULT now(),
    purged_through pg_catalog.timestamptz
);

-- Wide columns last, so that a row has no padding.
CREATE TABLE {schema.}{prefix}inbox (
    completed_at pg_catalog.timestamptz,
    consumer     bigint   NOT NULL,
    status       smallint NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    message_id   pg_catalog.bytea    NOT NULL,
    fingerprint  pg_catalog.bytea,             -- algorithm, key id, digest
    traceparent  pg_catalog.bytea,             -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
);
ALTER TABLE {schema.}{prefix}inbox ALTER COLUMN message_id SET STORAGE PLAIN;
ALTER TABLE {schema.}{prefix}inbox ALTER COLUMN fingerprint SET STORAGE PLAIN;
ALTER TABLE {schema.}{prefix}inbox ALTER COLUMN traceparent SET STORAGE PLAIN;

CREATE TABLE {schema.}{prefix}quarantine (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer      bigint  NOT NULL,
    reason        pg_catalog.text    NOT NULL,
    detail        pg_catalog.text    NOT NULL,
    identity_hash pg_catalog.bytea   NOT NULL,
    message_id    pg_catalog.bytea,
    fingerprint   pg_catalog.bytea   NOT NULL,
    existing      pg_catalog.bytea,
    topic         pg_catalog.text    NOT NULL,
    coordinates   pg_catalog.text    NOT NULL,
    uuid          pg_catalog.bytea,
    metadata      pg_catalog.bytea,
    facts         pg_catalog.bytea, -- JSON: what the broker said of the message
    payload       pg_catalog.bytea,
    seen          integer     NOT NULL DEFAULT 1,
    first_at      pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at       pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (consumer, identity_hash, fingerprint, reason)
);

-- Processes that serve a consumer whose subscriber does not tell redeliveries apart.
CREATE TABLE {schema.}{prefix}process (
    consumer bigint NOT NULL,
    process  pg_catalog.text NOT NULL,
    seen_at  pg_catalog.timestamptz NOT NULL,
    PRIMARY KEY (consumer, process)
);

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (1, 1, 'inbox');
