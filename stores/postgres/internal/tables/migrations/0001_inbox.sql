CREATE TABLE {schema.}{prefix}schema (
    version    integer PRIMARY KEY,
    compatible integer NOT NULL, -- the oldest program that can use this version
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE {schema.}{prefix}consumer (
    id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service        text NOT NULL,
    handler        text NOT NULL,
    topics         text[] NOT NULL DEFAULT '{}',
    registered_at  timestamptz NOT NULL DEFAULT now(),
    purged_through timestamptz,
    UNIQUE (service, handler)
);

-- Wide columns last, so that a row has no padding.
CREATE TABLE {schema.}{prefix}inbox (
    completed_at timestamptz,
    consumer     integer  NOT NULL,
    status       smallint NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    message_id   bytea    NOT NULL,
    fingerprint  bytea,             -- algorithm, key id, digest
    traceparent  bytea,             -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
);
ALTER TABLE {schema.}{prefix}inbox ALTER COLUMN message_id SET STORAGE PLAIN;
ALTER TABLE {schema.}{prefix}inbox ALTER COLUMN fingerprint SET STORAGE PLAIN;
ALTER TABLE {schema.}{prefix}inbox ALTER COLUMN traceparent SET STORAGE PLAIN;

CREATE TABLE {schema.}{prefix}quarantine (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer      integer NOT NULL,
    reason        text    NOT NULL,
    detail        text    NOT NULL,
    identity_hash bytea   NOT NULL,
    message_id    bytea,
    fingerprint   bytea   NOT NULL,
    existing      bytea,
    topic         text    NOT NULL,
    coordinates   text    NOT NULL,
    uuid          bytea,
    metadata      bytea,
    payload       bytea,
    seen          integer     NOT NULL DEFAULT 1,
    first_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (consumer, identity_hash, fingerprint, reason)
);

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (1, 1, 'inbox');
