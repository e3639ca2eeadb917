-- The schema before migration 4, with rows, as the code of that version has made them.
-- Statements end with a semicolon at the end of a line before an empty line, or the end.
-- Times are microseconds since 1970-01-01 UTC. What is compared is binary: no collation
-- may take two ids for one.
CREATE TABLE IF NOT EXISTS millpond_schema (
    version    INT NOT NULL PRIMARY KEY,
    compatible INT NOT NULL, -- the oldest program that can use this version
    name       VARCHAR(100) NOT NULL,
    applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS millpond_consumer (
    id             BIGINT         NOT NULL PRIMARY KEY, -- made of the name
    service        VARBINARY(200) NOT NULL,
    handler        VARBINARY(200) NOT NULL,
    topics         MEDIUMBLOB     NOT NULL, -- a JSON array
    registered_at  BIGINT         NOT NULL,
    purged_through BIGINT
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS millpond_inbox (
    consumer     BIGINT         NOT NULL,
    message_id   VARBINARY(512) NOT NULL,
    status       TINYINT        NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    completed_at BIGINT,                  -- of the claim that completed it
    token        BIGINT,                  -- of that claim: another one's differs
    fingerprint  VARBINARY(34),           -- algorithm, key id, digest
    traceparent  VARBINARY(25),           -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS millpond_quarantine (
    id            BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer      BIGINT         NOT NULL,
    reason        VARBINARY(200) NOT NULL,
    detail        TEXT           NOT NULL,
    identity_hash BINARY(32)     NOT NULL,
    message_id    LONGBLOB,
    fingerprint   VARBINARY(34)  NOT NULL,
    existing      VARBINARY(34),
    topic         TEXT           NOT NULL,
    coordinates   TEXT           NOT NULL,
    uuid          LONGBLOB,
    codec         VARBINARY(200) NOT NULL DEFAULT '',
    one_way       TINYINT        NOT NULL DEFAULT 0, -- the codec cannot restore the message
    status        VARBINARY(20)  NOT NULL DEFAULT 'held',
    seen          INT            NOT NULL DEFAULT 1,
    first_at      BIGINT         NOT NULL,
    last_at       BIGINT         NOT NULL,
    decided_at    BIGINT,
    metadata      LONGBLOB,
    facts         LONGBLOB, -- JSON: what the broker said of the message
    payload       LONGBLOB,
    UNIQUE KEY millpond_quarantine_identity (consumer, identity_hash, fingerprint, reason),
    KEY millpond_quarantine_status (status, consumer)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Processes that serve a consumer whose subscriber does not tell redeliveries apart.
CREATE TABLE IF NOT EXISTS millpond_process (
    consumer BIGINT        NOT NULL,
    process  VARBINARY(36) NOT NULL,
    seen_at  BIGINT        NOT NULL,
    PRIMARY KEY (consumer, process)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

INSERT INTO millpond_schema (version, compatible, name) VALUES (1, 1, 'inbox');

-- A message that has failed and is not completed has a row here beside its row in the
-- inbox. So the inbox stays narrow, and no index of this table concerns a message
-- that never fails.
CREATE TABLE IF NOT EXISTS millpond_failure (
    number      BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY, -- never given twice
    revision    INT            NOT NULL DEFAULT 0, -- grows with every change of the row
    consumer    BIGINT         NOT NULL,
    message_id  VARBINARY(512) NOT NULL,
    status      TINYINT        NOT NULL,           -- as in the inbox: 3 pending, 4 failed, 5 discarded
    placement   TINYINT        NOT NULL,           -- 1 parked, 2 redelivered
    content     TINYINT        NOT NULL,           -- 0 none, 1 kept, 2 too large, 3 off, 4 one way, 5 refused
    presumed    TINYINT        NOT NULL DEFAULT 0, -- an attempt was begun, its end is not known
    reserved    TINYINT        NOT NULL DEFAULT 0, -- a retry worker has it until due_at
    suspect     TINYINT        NOT NULL DEFAULT 0, -- one had it, and has not said what became of it
    attempts    INT            NOT NULL,
    uncounted   INT            NOT NULL,
    redrives    INT            NOT NULL DEFAULT 0,
    due_at      BIGINT,                            -- of the next attempt; null if there is none
    order_until BIGINT,                            -- until when others wait behind it if the broker has it
    budget_at   BIGINT         NOT NULL,           -- from when on the age counts
    first_at    BIGINT         NOT NULL,
    last_at     BIGINT         NOT NULL,
    class       VARBINARY(200) NOT NULL,
    cause VARBINARY(200) NOT NULL,
    order_key   VARBINARY(512),
    error       TEXT           NOT NULL,
    topic       TEXT           NOT NULL,
    coordinates TEXT           NOT NULL,
    codec       VARBINARY(200) NOT NULL DEFAULT '',
    history     BLOB           NOT NULL,           -- JSON: at, class, error of each attempt, the oldest first
    uuid        LONGBLOB,
    metadata    LONGBLOB,
    facts       LONGBLOB,                          -- JSON: what the broker said of the message
    payload     LONGBLOB,
    -- Stored, because the server reads all of a value to tell its length.
    size        BIGINT         GENERATED ALWAYS AS (COALESCE(LENGTH(payload), 0) + COALESCE(LENGTH(metadata), 0) + COALESCE(LENGTH(facts), 0)) STORED,
    UNIQUE KEY millpond_failure_message (consumer, message_id),
    KEY millpond_failure_due (consumer, status, placement, due_at),
    KEY millpond_failure_order (consumer, order_key, status, number),
    KEY millpond_failure_cause (consumer, cause)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS millpond_audit (
    id          BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at          BIGINT        NOT NULL,
    verb        VARBINARY(20) NOT NULL,
    actor       TEXT          NOT NULL,
    reason      TEXT          NOT NULL,
    consumer    BIGINT        NOT NULL,
    number      BIGINT        NOT NULL, -- of the failure or of the quarantine
    message_id  LONGBLOB,
    `before`    VARBINARY(20) NOT NULL,
    `after`     VARBINARY(20) NOT NULL
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

INSERT INTO millpond_schema (version, compatible, name) VALUES (2, 1, 'failures');

-- What is to be published. A row that is here is not known to be published; nothing else
-- says so. There is no index but the key: rows come and go.
CREATE TABLE IF NOT EXISTS millpond_outbox (
    id          BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    created_at  BIGINT         NOT NULL,
    bytes       INT            NOT NULL, -- of metadata and payload
    bucket      SMALLINT       NOT NULL,
    attempts    SMALLINT       NOT NULL DEFAULT 0,
    destination VARBINARY(200) NOT NULL,
    topic       VARBINARY(1024) NOT NULL,
    type        VARBINARY(200) NOT NULL,
    codec       VARBINARY(200) NOT NULL,
    message_id  VARBINARY(512) NOT NULL,
    order_key   VARBINARY(512),
    traceparent VARBINARY(25),
    error       TEXT,
    metadata    LONGBLOB,
    payload     LONGBLOB
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS millpond_outbox_history (
    id          BIGINT         NOT NULL PRIMARY KEY,
    created_at  BIGINT         NOT NULL,
    published_at BIGINT        NOT NULL,
    bytes       INT            NOT NULL, -- of metadata and payload
    bucket      SMALLINT       NOT NULL,
    attempts    SMALLINT       NOT NULL DEFAULT 0,
    destination VARBINARY(200) NOT NULL,
    topic       VARBINARY(1024) NOT NULL,
    type        VARBINARY(200) NOT NULL,
    codec       VARBINARY(200) NOT NULL,
    message_id  VARBINARY(512) NOT NULL,
    order_key   VARBINARY(512),
    traceparent VARBINARY(25),
    error       TEXT,
    metadata    LONGBLOB,
    payload     LONGBLOB,
    KEY millpond_outbox_history_published (published_at)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS millpond_outbox_failed (
    id          BIGINT         NOT NULL PRIMARY KEY,
    created_at  BIGINT         NOT NULL,
    failed_at   BIGINT         NOT NULL,
    blocks      TINYINT        NOT NULL, -- the others of its order key
    bytes       INT            NOT NULL, -- of metadata and payload
    bucket      SMALLINT       NOT NULL,
    attempts    SMALLINT       NOT NULL DEFAULT 0,
    destination VARBINARY(200) NOT NULL,
    topic       VARBINARY(1024) NOT NULL,
    type        VARBINARY(200) NOT NULL,
    codec       VARBINARY(200) NOT NULL,
    message_id  VARBINARY(512) NOT NULL,
    order_key   VARBINARY(512),
    traceparent VARBINARY(25),
    error       TEXT,
    metadata    LONGBLOB,
    payload     LONGBLOB,
    KEY millpond_outbox_failed_blocks (order_key, destination)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Whatever needs one owner per store.
CREATE TABLE IF NOT EXISTS millpond_lease (
    name  VARBINARY(200) NOT NULL,
    unit  BIGINT         NOT NULL,
    owner VARBINARY(200) NOT NULL,
    until BIGINT         NOT NULL,
    PRIMARY KEY (name, unit)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Who writes outputs with an order key locks a row of this table: the servers have no locks
-- by name that end with a transaction. Keys share rows, which costs nothing but waiting.
CREATE TABLE IF NOT EXISTS millpond_outbox_lock (
    slot INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

INSERT IGNORE INTO millpond_outbox_lock (slot)
SELECT a.n + 16 * b.n + 256 * c.n FROM
(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7
UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15) a,
(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7
UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15) b,
(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) c;

INSERT INTO millpond_schema (version, compatible, name) VALUES (3, 1, 'outbox');


INSERT INTO millpond_consumer (`id`, `service`, `handler`, `topics`, `registered_at`, `purged_through`) VALUES (2970855629233269707, x'696e76656e746f7279', x'73746f636b', x'5b226f7264657273222c2272657475726e73225d', 1795408887129406, NULL);

INSERT INTO millpond_failure (`number`, `revision`, `consumer`, `message_id`, `status`, `placement`, `content`, `presumed`, `reserved`, `suspect`, `attempts`, `uncounted`, `redrives`, `due_at`, `order_until`, `budget_at`, `first_at`, `last_at`, `class`, `cause`, `order_key`, `error`, `topic`, `coordinates`, `codec`, `history`, `uuid`, `metadata`, `facts`, `payload`) VALUES (1, 0, 2970855629233269707, x'70656e64696e67', 3, 1, 1, 0, 0, 0, 1, 0, 0, 1795408887136645, 1795408887136645, 1795408887136645, 1795408887136645, 1795408887136645, x'7472616e7369656e74', x'6e6f20616e73776572', NULL, x'6e6f20616e73776572', x'6f7264657273', x'6f72646572732f302f31', x'', x'5b7b226174223a22323032362d31312d32335430343a34313a32372e3133363634355a222c22636c617373223a227472616e7369656e74222c226572726f72223a226e6f20616e73776572227d5d', x'70656e64696e67', NULL, NULL, x'736563726574');

INSERT INTO millpond_failure (`number`, `revision`, `consumer`, `message_id`, `status`, `placement`, `content`, `presumed`, `reserved`, `suspect`, `attempts`, `uncounted`, `redrives`, `due_at`, `order_until`, `budget_at`, `first_at`, `last_at`, `class`, `cause`, `order_key`, `error`, `topic`, `coordinates`, `codec`, `history`, `uuid`, `metadata`, `facts`, `payload`) VALUES (2, 0, 2970855629233269707, x'64656164', 4, 1, 1, 0, 0, 0, 1, 0, 0, NULL, NULL, 1795408887137737, 1795408887137737, 1795408887137737, x'7472616e7369656e74', x'6e6f20616e73776572', NULL, x'6e6f20616e73776572', x'6f7264657273', x'6f72646572732f302f31', x'', x'5b7b226174223a22323032362d31312d32335430343a34313a32372e3133373733375a222c22636c617373223a227472616e7369656e74222c226572726f72223a226e6f20616e73776572227d5d', x'64656164', NULL, NULL, x'736563726574');

INSERT INTO millpond_failure (`number`, `revision`, `consumer`, `message_id`, `status`, `placement`, `content`, `presumed`, `reserved`, `suspect`, `attempts`, `uncounted`, `redrives`, `due_at`, `order_until`, `budget_at`, `first_at`, `last_at`, `class`, `cause`, `order_key`, `error`, `topic`, `coordinates`, `codec`, `history`, `uuid`, `metadata`, `facts`, `payload`) VALUES (3, 0, 2970855629233269707, x'676976656e207570', 4, 1, 1, 0, 0, 0, 1, 0, 0, NULL, NULL, 1795408887143914, 1795408887143914, 1795408887143914, x'7472616e7369656e74', x'6e6f20616e73776572', NULL, x'6e6f20616e73776572', x'6f7264657273', x'6f72646572732f302f31', x'', x'5b7b226174223a22323032362d31312d32335430343a34313a32372e3134333931345a222c22636c617373223a227472616e7369656e74222c226572726f72223a226e6f20616e73776572227d5d', x'676976656e207570', NULL, NULL, x'736563726574');

INSERT INTO millpond_failure (`number`, `revision`, `consumer`, `message_id`, `status`, `placement`, `content`, `presumed`, `reserved`, `suspect`, `attempts`, `uncounted`, `redrives`, `due_at`, `order_until`, `budget_at`, `first_at`, `last_at`, `class`, `cause`, `order_key`, `error`, `topic`, `coordinates`, `codec`, `history`, `uuid`, `metadata`, `facts`, `payload`) VALUES (4, 0, 2970855629233269707, x'6f726465726564', 3, 1, 1, 0, 0, 0, 1, 0, 0, 1795408887148515, 1795408887148515, 1795408887148515, 1795408887148515, 1795408887148515, x'7472616e7369656e74', x'6e6f20616e73776572', x'6b6579', x'6e6f20616e73776572', x'6f7264657273', x'6f72646572732f302f31', x'', x'5b7b226174223a22323032362d31312d32335430343a34313a32372e3134383531355a222c22636c617373223a227472616e7369656e74222c226572726f72223a226e6f20616e73776572227d5d', x'6f726465726564', x'7b2274657874223a7b2274797065223a226f72646572227d7d', NULL, x'736563726574');

INSERT INTO millpond_inbox (`consumer`, `message_id`, `status`, `completed_at`, `token`, `fingerprint`, `traceparent`) VALUES (2970855629233269707, x'64656164', 4, NULL, NULL, x'010028a3a5e81d1e89f0efc70b63bf717b921373fc7fac70bc1b7e4d466799c0c6b0', NULL);

INSERT INTO millpond_inbox (`consumer`, `message_id`, `status`, `completed_at`, `token`, `fingerprint`, `traceparent`) VALUES (2970855629233269707, x'676976656e207570', 4, NULL, NULL, x'0100623448243c17b64205099193f57084bb3a4de22e621060f998e85ac4fdbc323a', NULL);

INSERT INTO millpond_inbox (`consumer`, `message_id`, `status`, `completed_at`, `token`, `fingerprint`, `traceparent`) VALUES (2970855629233269707, x'6f726465726564', 3, NULL, NULL, x'01007fdbf2f7e97fe77abfa3b1191e40719930e715779c65caa3453f7c349ac525b7', NULL);

INSERT INTO millpond_inbox (`consumer`, `message_id`, `status`, `completed_at`, `token`, `fingerprint`, `traceparent`) VALUES (2970855629233269707, x'70656e64696e67', 3, NULL, NULL, x'010062a2fed3d6e08c44835fce71f02210b1ddabfb066e39edf1e6c261988f824dd3', NULL);

INSERT INTO millpond_inbox (`consumer`, `message_id`, `status`, `completed_at`, `token`, `fingerprint`, `traceparent`) VALUES (2970855629233269707, x'706c61696e', 2, 1795408887134978, 214548461963851517, x'0100a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475', NULL);

INSERT INTO millpond_quarantine (`id`, `consumer`, `reason`, `detail`, `identity_hash`, `message_id`, `fingerprint`, `existing`, `topic`, `coordinates`, `uuid`, `codec`, `one_way`, `status`, `seen`, `first_at`, `last_at`, `decided_at`, `metadata`, `facts`, `payload`) VALUES (1, 2970855629233269707, x'636f6e666c696374', x'', x'e3c4d9441899d1ad229656e0a68ed66e1c98ef06c3f111004d513111655ba4f8', x'737472616e6765', x'010041b3ab146fd067194352ee20901347a73366adfdf94122d428c3260a1b689ee2', NULL, x'6f7264657273', x'', x'', x'', 0, x'68656c64', 1, 1795408887144820, 1795408887144820, NULL, NULL, NULL, x'737472616e6765');

INSERT INTO millpond_quarantine (`id`, `consumer`, `reason`, `detail`, `identity_hash`, `message_id`, `fingerprint`, `existing`, `topic`, `coordinates`, `uuid`, `codec`, `one_way`, `status`, `seen`, `first_at`, `last_at`, `decided_at`, `metadata`, `facts`, `payload`) VALUES (2, 2970855629233269707, x'636f6e666c696374', x'', x'496300afe303301e61bec5b51b50e4cb06c9417064c84cfe5e4616c3d3ea83c2', x'737472616e676572', x'01008aca4f36774f82a67c507cb9c96679482e2cc767f2d38502269557a566b092fb', NULL, x'6f7264657273', x'', x'', x'', 0, x'68656c64', 1, 1795408887145362, 1795408887145362, NULL, NULL, NULL, x'737472616e676572');
