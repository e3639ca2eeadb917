-- The schema before migration 4, with rows, as the code of that version has made them.
-- Times are microseconds since 1970-01-01 UTC.
CREATE TABLE main.millpond_schema (
    version    INTEGER PRIMARY KEY,
    compatible INTEGER NOT NULL, -- the oldest program that can use this version
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER))
) STRICT;

CREATE TABLE main.millpond_consumer (
    id             INTEGER PRIMARY KEY, -- made of the name
    service        TEXT    NOT NULL,
    handler        TEXT    NOT NULL,
    topics         TEXT    NOT NULL DEFAULT '[]', -- a JSON array
    registered_at  INTEGER NOT NULL DEFAULT (CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)),
    purged_through INTEGER
) STRICT;

CREATE TABLE main.millpond_inbox (
    consumer     INTEGER NOT NULL,
    message_id   BLOB    NOT NULL,
    status       INTEGER NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    completed_at INTEGER,
    fingerprint  BLOB,             -- algorithm, key id, digest
    traceparent  BLOB,             -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE main.millpond_quarantine (
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
CREATE TABLE main.millpond_process (
    consumer INTEGER NOT NULL,
    process  TEXT    NOT NULL,
    seen_at  INTEGER NOT NULL,
    PRIMARY KEY (consumer, process)
) STRICT, WITHOUT ROWID;

INSERT INTO main.millpond_schema (version, compatible, name) VALUES (1, 1, 'inbox');

-- A message that has failed and is not completed has a row here beside its row in the
-- inbox. So the inbox stays narrow, and no index of this table concerns a message
-- that never fails.
CREATE TABLE main.millpond_failure (
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
CREATE INDEX main.millpond_failure_due ON millpond_failure (consumer, due_at) WHERE status = 3 AND placement = 1;
CREATE INDEX main.millpond_failure_order ON millpond_failure (consumer, order_key, number) WHERE status = 3 AND order_key IS NOT NULL;
CREATE INDEX main.millpond_failure_cause ON millpond_failure (consumer, cause);

ALTER TABLE main.millpond_quarantine ADD COLUMN codec      TEXT    NOT NULL DEFAULT '';
ALTER TABLE main.millpond_quarantine ADD COLUMN one_way    INTEGER NOT NULL DEFAULT 0; -- the codec cannot restore the message
ALTER TABLE main.millpond_quarantine ADD COLUMN status     TEXT    NOT NULL DEFAULT 'held';
ALTER TABLE main.millpond_quarantine ADD COLUMN decided_at INTEGER;

CREATE TABLE main.millpond_audit (
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

INSERT INTO main.millpond_schema (version, compatible, name) VALUES (2, 1, 'failures');

-- What is to be published. A row that is here is not known to be published; nothing else
-- says so. There is no index but the key: rows come and go.
CREATE TABLE main.millpond_outbox (
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

CREATE TABLE main.millpond_outbox_history (
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
CREATE INDEX main.millpond_outbox_history_published ON millpond_outbox_history (published_at);

CREATE TABLE main.millpond_outbox_failed (
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
CREATE INDEX main.millpond_outbox_failed_blocks ON millpond_outbox_failed (order_key, destination) WHERE blocks;

-- Whatever needs one owner per store.
CREATE TABLE main.millpond_lease (
    name  TEXT    NOT NULL,
    unit  INTEGER NOT NULL,
    owner TEXT    NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (name, unit)
) STRICT, WITHOUT ROWID;

INSERT INTO main.millpond_schema (version, compatible, name) VALUES (3, 1, 'outbox');


INSERT INTO millpond_consumer (id, service, handler, topics, registered_at, purged_through) VALUES (2970855629233269707, 'inventory', 'stock', '["orders","returns"]', 1795408887172000, NULL);

INSERT INTO millpond_failure (number, revision, consumer, message_id, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) VALUES (1, 0, 2970855629233269707, x'70656e64696e67', 3, 1, 1, 0, 0, 0, 1, 0, 0, 1795408887176000, 1795408887176000, 1795408887176000, 1795408887176000, 1795408887176000, 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', NULL, '[{"at":"2026-11-23T04:41:27.176Z","class":"transient","error":"no answer"}]', '', x'70656e64696e67', NULL, NULL, x'736563726574');

INSERT INTO millpond_failure (number, revision, consumer, message_id, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) VALUES (2, 0, 2970855629233269707, x'64656164', 4, 1, 1, 0, 0, 0, 1, 0, 0, NULL, NULL, 1795408887178000, 1795408887178000, 1795408887178000, 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', NULL, '[{"at":"2026-11-23T04:41:27.178Z","class":"transient","error":"no answer"}]', '', x'64656164', NULL, NULL, x'736563726574');

INSERT INTO millpond_failure (number, revision, consumer, message_id, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) VALUES (3, 0, 2970855629233269707, x'676976656e207570', 4, 1, 1, 0, 0, 0, 1, 0, 0, NULL, NULL, 1795408887184000, 1795408887184000, 1795408887184000, 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', NULL, '[{"at":"2026-11-23T04:41:27.184Z","class":"transient","error":"no answer"}]', '', x'676976656e207570', NULL, NULL, x'736563726574');

INSERT INTO millpond_failure (number, revision, consumer, message_id, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) VALUES (4, 0, 2970855629233269707, x'6f726465726564', 3, 1, 1, 0, 0, 0, 1, 0, 0, 1795408887186000, 1795408887186000, 1795408887186000, 1795408887186000, 1795408887186000, 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', x'6b6579', '[{"at":"2026-11-23T04:41:27.186Z","class":"transient","error":"no answer"}]', '', x'6f726465726564', x'7b2274657874223a7b2274797065223a226f72646572227d7d', NULL, x'736563726574');

INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, fingerprint, traceparent) VALUES (2970855629233269707, x'64656164', 4, NULL, x'010028a3a5e81d1e89f0efc70b63bf717b921373fc7fac70bc1b7e4d466799c0c6b0', NULL);

INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, fingerprint, traceparent) VALUES (2970855629233269707, x'676976656e207570', 4, NULL, x'0100623448243c17b64205099193f57084bb3a4de22e621060f998e85ac4fdbc323a', NULL);

INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, fingerprint, traceparent) VALUES (2970855629233269707, x'6f726465726564', 3, NULL, x'01007fdbf2f7e97fe77abfa3b1191e40719930e715779c65caa3453f7c349ac525b7', NULL);

INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, fingerprint, traceparent) VALUES (2970855629233269707, x'70656e64696e67', 3, NULL, x'010062a2fed3d6e08c44835fce71f02210b1ddabfb066e39edf1e6c261988f824dd3', NULL);

INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, fingerprint, traceparent) VALUES (2970855629233269707, x'706c61696e', 2, 1795408887176000, x'0100a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475', NULL);

INSERT INTO millpond_quarantine (id, consumer, reason, detail, identity_hash, message_id, fingerprint, existing, topic, coordinates, uuid, metadata, facts, seen, first_at, last_at, payload, codec, one_way, status, decided_at) VALUES (1, 2970855629233269707, 'conflict', '', x'e3c4d9441899d1ad229656e0a68ed66e1c98ef06c3f111004d513111655ba4f8', x'737472616e6765', x'010041b3ab146fd067194352ee20901347a73366adfdf94122d428c3260a1b689ee2', NULL, 'orders', '', x'', NULL, NULL, 1, 1795408887185000, 1795408887185000, x'737472616e6765', '', 0, 'held', NULL);

INSERT INTO millpond_quarantine (id, consumer, reason, detail, identity_hash, message_id, fingerprint, existing, topic, coordinates, uuid, metadata, facts, seen, first_at, last_at, payload, codec, one_way, status, decided_at) VALUES (2, 2970855629233269707, 'conflict', '', x'496300afe303301e61bec5b51b50e4cb06c9417064c84cfe5e4616c3d3ea83c2', x'737472616e676572', x'01008aca4f36774f82a67c507cb9c96679482e2cc767f2d38502269557a566b092fb', NULL, 'orders', '', x'', NULL, NULL, 1, 1795408887186000, 1795408887186000, x'737472616e676572', '', 0, 'held', NULL);
