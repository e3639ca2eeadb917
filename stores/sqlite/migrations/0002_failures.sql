-- A message that has failed and is not completed has a row here beside its row in the
-- inbox. So the inbox stays narrow, and no index of this table concerns a message
-- that never fails.
CREATE TABLE {schema.}{prefix}failure (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    revision    INTEGER NOT NULL DEFAULT 0, -- grows with every change of the row
    consumer    INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    status      INTEGER NOT NULL,           -- as in the inbox: 3 pending, 4 failed, 5 discarded
    placement   INTEGER NOT NULL,           -- 1 parked, 2 redelivered
    content     INTEGER NOT NULL,           -- 0 none, 1 kept, 2 too large, 3 off, 4 one way, 5 refused
    presumed    INTEGER NOT NULL DEFAULT 0, -- an attempt was begun, its end is not known
    reserved    INTEGER NOT NULL DEFAULT 0, -- a retry worker has it until due_at
    suspect     INTEGER NOT NULL DEFAULT 0, -- one had it, and has not said what became of it
    attempts    INTEGER NOT NULL,
    uncounted   INTEGER NOT NULL,
    redrives    INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER,                    -- of the next attempt; null if there is none
    order_until INTEGER,                    -- until when others wait behind it if the broker has it
    budget_at   INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)), -- from when on the age counts
    first_at    INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    last_at     INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    class       TEXT    NOT NULL,
    cause TEXT    NOT NULL,
    error       TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    coordinates TEXT    NOT NULL,
    order_key   BLOB,
    history     TEXT    NOT NULL DEFAULT '[]', -- at, class, error of each attempt, the oldest first
    codec       TEXT    NOT NULL DEFAULT '',
    uuid        BLOB,
    metadata    BLOB,
    facts       BLOB, -- JSON: what the broker said of the message
    payload     BLOB, -- last, so that the other columns are read without it
    UNIQUE (consumer, message_id)
) STRICT;
CREATE INDEX {schema.}{prefix}failure_due ON {prefix}failure (consumer, due_at) WHERE status = 3 AND placement = 1;
CREATE INDEX {schema.}{prefix}failure_order ON {prefix}failure (consumer, order_key, number) WHERE status = 3 AND order_key IS NOT NULL;
CREATE INDEX {schema.}{prefix}failure_cause ON {prefix}failure (consumer, cause);

ALTER TABLE {schema.}{prefix}quarantine ADD COLUMN codec      TEXT    NOT NULL DEFAULT '';
ALTER TABLE {schema.}{prefix}quarantine ADD COLUMN one_way    INTEGER NOT NULL DEFAULT 0; -- the codec cannot restore the message
ALTER TABLE {schema.}{prefix}quarantine ADD COLUMN status     TEXT    NOT NULL DEFAULT 'held';
ALTER TABLE {schema.}{prefix}quarantine ADD COLUMN decided_at INTEGER;

CREATE TABLE {schema.}{prefix}audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    verb       TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    consumer   INTEGER NOT NULL,
    number     INTEGER NOT NULL, -- of the failure or of the quarantine
    message_id BLOB,
    before     TEXT    NOT NULL,
    after      TEXT    NOT NULL
) STRICT;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (2, 1, 'failures');
