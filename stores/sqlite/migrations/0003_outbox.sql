-- What is to be published. A row that is here is not known to be published; nothing else
-- says so. There is no index but the key: rows come and go.
CREATE TABLE {schema.}{prefix}outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at  INTEGER NOT NULL,
    bytes       INTEGER NOT NULL, -- of metadata and payload
    bucket      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    destination TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    codec       TEXT    NOT NULL,
    message_id  BLOB    NOT NULL,
    order_key   BLOB,
    traceparent BLOB,
    error       TEXT,
    metadata    BLOB,
    payload     BLOB -- last, so that the other columns are read without it
) STRICT;

CREATE TABLE {schema.}{prefix}outbox_history (
    id          INTEGER PRIMARY KEY,
    created_at  INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    bytes       INTEGER NOT NULL, -- of metadata and payload
    bucket      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    destination TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    codec       TEXT    NOT NULL,
    message_id  BLOB    NOT NULL,
    order_key   BLOB,
    traceparent BLOB,
    error       TEXT,
    metadata    BLOB,
    payload     BLOB -- last, so that the other columns are read without it
) STRICT;
CREATE INDEX {schema.}{prefix}outbox_history_published ON {prefix}outbox_history (published_at);

CREATE TABLE {schema.}{prefix}outbox_failed (
    id          INTEGER PRIMARY KEY,
    created_at  INTEGER NOT NULL,
    failed_at   INTEGER NOT NULL,
    blocks      INTEGER NOT NULL, -- the others of its order key
    bytes       INTEGER NOT NULL, -- of metadata and payload
    bucket      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    destination TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    codec       TEXT    NOT NULL,
    message_id  BLOB    NOT NULL,
    order_key   BLOB,
    traceparent BLOB,
    error       TEXT,
    metadata    BLOB,
    payload     BLOB -- last, so that the other columns are read without it
) STRICT;
CREATE INDEX {schema.}{prefix}outbox_failed_blocks ON {prefix}outbox_failed (order_key, destination) WHERE blocks;

-- Whatever needs one owner per store.
CREATE TABLE {schema.}{prefix}lease (
    name  TEXT    NOT NULL,
    unit  INTEGER NOT NULL,
    owner TEXT    NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (name, unit)
) STRICT, WITHOUT ROWID;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (3, 1, 'outbox');
