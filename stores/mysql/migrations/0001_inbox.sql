-- Statements end with a semicolon at the end of a line before an empty line, or the end.
-- Times are microseconds since 1970-01-01 UTC. What is compared is binary: no collation
-- may take two ids for one.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}schema (
    version    INT NOT NULL PRIMARY KEY,
    compatible INT NOT NULL, -- the oldest program that can use this version
    name       VARCHAR(100) NOT NULL,
    applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {schema.}{prefix}consumer (
    id             BIGINT         NOT NULL PRIMARY KEY, -- made of the name
    service        VARBINARY(200) NOT NULL,
    handler        VARBINARY(200) NOT NULL,
    topics         MEDIUMBLOB     NOT NULL, -- a JSON array
    registered_at  BIGINT         NOT NULL,
    purged_through BIGINT
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {schema.}{prefix}inbox (
    consumer     BIGINT         NOT NULL,
    message_id   VARBINARY(512) NOT NULL,
    status       TINYINT        NOT NULL, -- 1 processing, 2 completed, 3 pending, 4 failed, 5 discarded
    completed_at BIGINT,                  -- of the claim that completed it
    token        BIGINT,                  -- of that claim: another one's differs
    fingerprint  VARBINARY(34),           -- algorithm, key id, digest
    traceparent  VARBINARY(25),           -- trace id, span id, flags
    PRIMARY KEY (consumer, message_id)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {schema.}{prefix}quarantine (
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
    UNIQUE KEY {prefix}quarantine_identity (consumer, identity_hash, fingerprint, reason),
    KEY {prefix}quarantine_status (status, consumer)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin /*T![auto_id_cache] AUTO_ID_CACHE 1 */;

-- Processes that serve a consumer whose subscriber does not tell redeliveries apart.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}process (
    consumer BIGINT        NOT NULL,
    process  VARBINARY(36) NOT NULL,
    seen_at  BIGINT        NOT NULL,
    PRIMARY KEY (consumer, process)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (1, 1, 'inbox');
