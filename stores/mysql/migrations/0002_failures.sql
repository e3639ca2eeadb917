-- A message that has failed and is not completed has a row here beside its row in the
-- inbox. So the inbox stays narrow, and no index of this table concerns a message
-- that never fails.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}failure (
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
    UNIQUE KEY {prefix}failure_message (consumer, message_id),
    KEY {prefix}failure_due (consumer, status, placement, due_at),
    KEY {prefix}failure_order (consumer, order_key, status, number),
    KEY {prefix}failure_cause (consumer, cause)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin /*T![auto_id_cache] AUTO_ID_CACHE 1 */;

CREATE TABLE IF NOT EXISTS {schema.}{prefix}audit (
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
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin /*T![auto_id_cache] AUTO_ID_CACHE 1 */;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (2, 1, 'failures');
