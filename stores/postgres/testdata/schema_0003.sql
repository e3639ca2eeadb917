-- The schema before migration 4, with rows, as the code of that version has made them.
CREATE TABLE millpond_schema (
    version    integer PRIMARY KEY,
    compatible integer NOT NULL, -- the oldest program that can use this version
    name       pg_catalog.text NOT NULL,
    applied_at pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE TABLE millpond_consumer (
    id             bigint PRIMARY KEY, -- made of the name
    service        pg_catalog.text NOT NULL,
    handler        pg_catalog.text NOT NULL,
    topics         pg_catalog.text[] NOT NULL DEFAULT '{}',
    registered_at  pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.now(),
    purged_through pg_catalog.timestamptz
);

-- Wide columns last, so that a row has no padding.
CREATE TABLE millpond_inbox (
    completed_at pg_catalog.timestamptz,
    consumer     bigint   NOT NULL,
    status       smallint NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    message_id   pg_catalog.bytea    NOT NULL,
    fingerprint  pg_catalog.bytea,             -- algorithm, key id, digest
    traceparent  pg_catalog.bytea,             -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
);
ALTER TABLE millpond_inbox ALTER COLUMN message_id SET STORAGE PLAIN;
ALTER TABLE millpond_inbox ALTER COLUMN fingerprint SET STORAGE PLAIN;
ALTER TABLE millpond_inbox ALTER COLUMN traceparent SET STORAGE PLAIN;

CREATE TABLE millpond_quarantine (
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
    first_at      pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    last_at       pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    UNIQUE (consumer, identity_hash, fingerprint, reason)
);

-- Processes that serve a consumer whose subscriber does not tell redeliveries apart.
CREATE TABLE millpond_process (
    consumer bigint NOT NULL,
    process  pg_catalog.text NOT NULL,
    seen_at  pg_catalog.timestamptz NOT NULL,
    PRIMARY KEY (consumer, process)
);

INSERT INTO millpond_schema (version, compatible, name) VALUES (1, 1, 'inbox');

-- A message that has failed and is not completed has a row here beside its row in the
-- inbox. So the inbox stays narrow, and no index of this table concerns a message
-- that never fails.
CREATE TABLE millpond_failure (
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
    budget_at   pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(), -- from when on the age counts
    first_at    pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    last_at     pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
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
CREATE UNIQUE INDEX millpond_failure_number ON millpond_failure (number);
CREATE INDEX millpond_failure_due ON millpond_failure (consumer, due_at) WHERE status OPERATOR(pg_catalog.=) 3 AND placement OPERATOR(pg_catalog.=) 1;
CREATE INDEX millpond_failure_order ON millpond_failure (consumer, order_key, number) WHERE status OPERATOR(pg_catalog.=) 3 AND order_key IS NOT NULL;
CREATE INDEX millpond_failure_status ON millpond_failure (consumer, status, number);

ALTER TABLE millpond_quarantine
    ADD COLUMN codec      pg_catalog.text    NOT NULL DEFAULT '',
    ADD COLUMN one_way    boolean NOT NULL DEFAULT false, -- the codec cannot restore the message
    ADD COLUMN status     pg_catalog.text    NOT NULL DEFAULT 'held',
    ADD COLUMN decided_at pg_catalog.timestamptz;

CREATE TABLE millpond_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    verb       pg_catalog.text    NOT NULL,
    actor      pg_catalog.text    NOT NULL,
    reason     pg_catalog.text    NOT NULL,
    consumer   bigint  NOT NULL,
    number     bigint  NOT NULL, -- of the failure or of the quarantine
    message_id pg_catalog.bytea,
    before     pg_catalog.text    NOT NULL,
    after      pg_catalog.text    NOT NULL
);

INSERT INTO millpond_schema (version, compatible, name) VALUES (2, 1, 'failures');

-- What is to be published. A row that is here is not known to be published; nothing else
-- says so. There is no index but the key: rows come and go.
CREATE TABLE millpond_outbox (
    id          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at  pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
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

CREATE TABLE millpond_outbox_history (
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
CREATE INDEX millpond_outbox_history_published ON millpond_outbox_history USING brin (published_at);

CREATE TABLE millpond_outbox_failed (
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
CREATE INDEX millpond_outbox_failed_blocks ON millpond_outbox_failed (order_key, destination) WHERE blocks;

-- Whatever needs one owner per store.
CREATE TABLE millpond_lease (
    name  pg_catalog.text NOT NULL,
    unit  bigint NOT NULL,
    owner pg_catalog.text NOT NULL,
    until pg_catalog.timestamptz NOT NULL,
    PRIMARY KEY (name, unit)
);

INSERT INTO millpond_schema (version, compatible, name) VALUES (3, 1, 'outbox');


INSERT INTO millpond_consumer (id, service, handler, topics, registered_at, purged_through) OVERRIDING SYSTEM VALUE VALUES (2970855629233269707, 'inventory', 'stock', '{orders,returns}', '2026-11-23 04:41:23.880016Z', NULL);

INSERT INTO millpond_failure (number, consumer, revision, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, message_id, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) OVERRIDING SYSTEM VALUE VALUES (1, 2970855629233269707, 0, 3, 1, 1, false, false, false, 1, 0, 0, '2026-11-23 04:41:23.888341Z', '2026-11-23 04:41:23.888341Z', '2026-11-23 04:41:23.888585Z', '2026-11-23 04:41:23.888585Z', '2026-11-23 04:41:23.888585Z', '\x70656e64696e67', 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', NULL, '[{"at": "2026-11-23T04:41:23.888341+00:00", "class": "transient", "error": "no answer"}]', '', '\x70656e64696e67', NULL, NULL, '\x736563726574');

INSERT INTO millpond_failure (number, consumer, revision, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, message_id, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) OVERRIDING SYSTEM VALUE VALUES (2, 2970855629233269707, 0, 4, 1, 1, false, false, false, 1, 0, 0, NULL, NULL, '2026-11-23 04:41:23.889702Z', '2026-11-23 04:41:23.889702Z', '2026-11-23 04:41:23.889702Z', '\x64656164', 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', NULL, '[{"at": "2026-11-23T04:41:23.889533+00:00", "class": "transient", "error": "no answer"}]', '', '\x64656164', NULL, NULL, '\x736563726574');

INSERT INTO millpond_failure (number, consumer, revision, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, message_id, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) OVERRIDING SYSTEM VALUE VALUES (3, 2970855629233269707, 0, 4, 1, 1, false, false, false, 1, 0, 0, NULL, NULL, '2026-11-23 04:41:23.890368Z', '2026-11-23 04:41:23.890368Z', '2026-11-23 04:41:23.890368Z', '\x676976656e207570', 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', NULL, '[{"at": "2026-11-23T04:41:23.890201+00:00", "class": "transient", "error": "no answer"}]', '', '\x676976656e207570', NULL, NULL, '\x736563726574');

INSERT INTO millpond_failure (number, consumer, revision, status, placement, content, presumed, reserved, suspect, attempts, uncounted, redrives, due_at, order_until, budget_at, first_at, last_at, message_id, class, cause, error, topic, coordinates, order_key, history, codec, uuid, metadata, facts, payload) OVERRIDING SYSTEM VALUE VALUES (4, 2970855629233269707, 0, 3, 1, 1, false, false, false, 1, 0, 0, '2026-11-23 04:41:23.893568Z', '2026-11-23 04:41:23.893568Z', '2026-11-23 04:41:23.893756Z', '2026-11-23 04:41:23.893756Z', '2026-11-23 04:41:23.893756Z', '\x6f726465726564', 'transient', 'no answer', 'no answer', 'orders', 'orders/0/1', '\x6b6579', '[{"at": "2026-11-23T04:41:23.893568+00:00", "class": "transient", "error": "no answer"}]', '', '\x6f726465726564', '\x7b2274657874223a7b2274797065223a226f72646572227d7d', NULL, '\x736563726574');

ALTER TABLE millpond_failure ALTER COLUMN number RESTART WITH 100;

INSERT INTO millpond_inbox (completed_at, consumer, status, message_id, fingerprint, traceparent) OVERRIDING SYSTEM VALUE VALUES ('2026-11-23 04:41:23.885505Z', 2970855629233269707, 2, '\x706c61696e', '\x0100a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475', NULL);

INSERT INTO millpond_inbox (completed_at, consumer, status, message_id, fingerprint, traceparent) OVERRIDING SYSTEM VALUE VALUES (NULL, 2970855629233269707, 3, '\x70656e64696e67', '\x010062a2fed3d6e08c44835fce71f02210b1ddabfb066e39edf1e6c261988f824dd3', NULL);

INSERT INTO millpond_inbox (completed_at, consumer, status, message_id, fingerprint, traceparent) OVERRIDING SYSTEM VALUE VALUES (NULL, 2970855629233269707, 4, '\x64656164', '\x010028a3a5e81d1e89f0efc70b63bf717b921373fc7fac70bc1b7e4d466799c0c6b0', NULL);

INSERT INTO millpond_inbox (completed_at, consumer, status, message_id, fingerprint, traceparent) OVERRIDING SYSTEM VALUE VALUES (NULL, 2970855629233269707, 4, '\x676976656e207570', '\x0100623448243c17b64205099193f57084bb3a4de22e621060f998e85ac4fdbc323a', NULL);

INSERT INTO millpond_inbox (completed_at, consumer, status, message_id, fingerprint, traceparent) OVERRIDING SYSTEM VALUE VALUES (NULL, 2970855629233269707, 3, '\x6f726465726564', '\x01007fdbf2f7e97fe77abfa3b1191e40719930e715779c65caa3453f7c349ac525b7', NULL);

INSERT INTO millpond_quarantine (id, consumer, reason, detail, identity_hash, message_id, fingerprint, existing, topic, coordinates, uuid, metadata, facts, payload, seen, first_at, last_at, codec, one_way, status, decided_at) OVERRIDING SYSTEM VALUE VALUES (1, 2970855629233269707, 'conflict', '', '\xe3c4d9441899d1ad229656e0a68ed66e1c98ef06c3f111004d513111655ba4f8', '\x737472616e6765', '\x010041b3ab146fd067194352ee20901347a73366adfdf94122d428c3260a1b689ee2', NULL, 'orders', '', '\x', NULL, NULL, '\x737472616e6765', 1, '2026-11-23 04:41:23.891173Z', '2026-11-23 04:41:23.891173Z', '', false, 'held', NULL);

INSERT INTO millpond_quarantine (id, consumer, reason, detail, identity_hash, message_id, fingerprint, existing, topic, coordinates, uuid, metadata, facts, payload, seen, first_at, last_at, codec, one_way, status, decided_at) OVERRIDING SYSTEM VALUE VALUES (2, 2970855629233269707, 'conflict', '', '\x496300afe303301e61bec5b51b50e4cb06c9417064c84cfe5e4616c3d3ea83c2', '\x737472616e676572', '\x01008aca4f36774f82a67c507cb9c96679482e2cc767f2d38502269557a566b092fb', NULL, 'orders', '', '\x', NULL, NULL, '\x737472616e676572', 1, '2026-11-23 04:41:23.891887Z', '2026-11-23 04:41:23.891887Z', '', false, 'held', NULL);

ALTER TABLE millpond_quarantine ALTER COLUMN id RESTART WITH 100;
