-- Times are microseconds since 1970-01-01 UTC.
CREATE TABLE {schema.}{prefix}schema (
    version    INTEGER PRIMARY KEY,
    compatible INTEGER NOT NULL, -- the oldest program that can use this version
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER))
) STRICT;

CREATE TABLE {schema.}{prefix}consumer (
    id             INTEGER PRIMARY KEY, -- made of the name
    service        TEXT    NOT NULL,
    handler        TEXT    NOT NULL,
    topics         TEXT    NOT NULL DEFAULT '[]', -- a JSON array
    registered_at  INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    purged_through INTEGER
) STRICT;

CREATE TABLE {schema.}{prefix}inbox (
    consumer     INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    status       INTEGER NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    completed_at INTEGER,
    fingerprint  BLOB,             -- algorithm, key id, digest
    traceparent  BLOB,             -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE {schema.}{prefix}quarantine (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer      INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    detail        TEXT    NOT NULL,
    identity_hash BLOB    NOT NULL,
    message_id    BLOB,
    fingerprint   BLOB    NOT NULL,
    existing      BLOB,
    topic         TEXT    NOT NULL,
    coordinates   TEXT    NOT NULL,
    uuid          BLOB,
    metadata      BLOB,
    facts         BLOB, -- JSON: what the broker said of the message
    seen          INTEGER NOT NULL DEFAULT 1,
    first_at      INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    last_at       INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    payload       BLOB, -- last, so that the other columns are read without it
    UNIQUE (consumer, identity_hash, fingerprint, reason)
) STRICT;

-- Processes that serve a consumer whose subscriber does not tell redeliveries apart.
CREATE TABLE {schema.}{prefix}process (
    consumer INTEGER NOT NULL,
    process  TEXT    NOT NULL,
    seen_at  INTEGER NOT NULL,
    PRIMARY KEY (consumer, process)
) STRICT, WITHOUT ROWID;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (1, 1, 'inbox');
