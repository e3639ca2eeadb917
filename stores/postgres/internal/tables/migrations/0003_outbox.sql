-- What is to be published. A row that is here is not known to be published; nothing else
-- says so. There is no index but the key: rows come and go.
CREATE TABLE {schema.}{prefix}outbox (
    id          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at  pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    bytes       integer  NOT NULL, -- of metadata and payload
    bucket      smallint NOT NULL,
    attempts    smallint NOT NULL DEFAULT 0,
    destination pg_catalog.text    NOT NULL,
    topic       pg_catalog.text    NOT NULL,
    type        pg_catalog.text    NOT NULL,
    codec       pg_catalog.text    NOT NULL,
    message_id  pg_catalog.bytea   NOT NULL,
    order_key   pg_catalog.bytea,
    traceparent pg_catalog.bytea,
    metadata    pg_catalog.bytea,
    payload     pg_catalog.bytea,
    error       pg_catalog.text
);

CREATE TABLE {schema.}{prefix}outbox_history (
    id           bigint   PRIMARY KEY,
    created_at   pg_catalog.timestamptz NOT NULL,
    published_at pg_catalog.timestamptz NOT NULL,
    bytes        integer  NOT NULL,
    bucket       smallint NOT NULL,
    attempts     smallint NOT NULL,
    destination  pg_catalog.text    NOT NULL,
    topic        pg_catalog.text    NOT NULL,
    type         pg_catalog.text    NOT NULL,
    codec        pg_catalog.text    NOT NULL,
    message_id   pg_catalog.bytea   NOT NULL,
    order_key    pg_catalog.bytea,
    traceparent  pg_catalog.bytea,
    metadata     pg_catalog.bytea,
    payload      pg_catalog.bytea,
    error        pg_catalog.text
);
CREATE INDEX {prefix}outbox_history_published ON {schema.}{prefix}outbox_history USING brin (published_at);

CREATE TABLE {schema.}{prefix}outbox_failed (
    id          bigint   PRIMARY KEY,
    created_at  pg_catalog.timestamptz NOT NULL,
    failed_at   pg_catalog.timestamptz NOT NULL,
    blocks      boolean  NOT NULL, -- the others of its order key
    bytes       integer  NOT NULL,
    bucket      smallint NOT NULL,
    attempts    smallint NOT NULL,
    destination pg_catalog.text    NOT NULL,
    topic       pg_catalog.text    NOT NULL,
    type        pg_catalog.text    NOT NULL,
    codec       pg_catalog.text    NOT NULL,
    message_id  pg_catalog.bytea   NOT NULL,
    order_key   pg_catalog.bytea,
    traceparent pg_catalog.bytea,
    metadata    pg_catalog.bytea,
    payload     pg_catalog.bytea,
    error       pg_catalog.text    NOT NULL
);
CREATE INDEX {prefix}outbox_failed_blocks ON {schema.}{prefix}outbox_failed (order_key, destination) WHERE blocks;

-- Whatever needs one owner per store.
CREATE TABLE {schema.}{prefix}lease (
    name  pg_catalog.text NOT NULL,
    unit  bigint NOT NULL,
    owner pg_catalog.text NOT NULL,
    until pg_catalog.timestamptz NOT NULL,
    PRIMARY KEY (name, unit)
);

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (3, 1, 'outbox');
