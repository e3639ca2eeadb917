-- What is to be published. A row that is here is not known to be published; nothing else
-- says so. There is no index but the key: rows come and go.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}outbox (
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
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin /*T![auto_id_cache] AUTO_ID_CACHE 1 */;

CREATE TABLE IF NOT EXISTS {schema.}{prefix}outbox_history (
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
    KEY {prefix}outbox_history_published (published_at)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {schema.}{prefix}outbox_failed (
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
    KEY {prefix}outbox_failed_blocks (order_key, destination)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Whatever needs one owner per store.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}lease (
    name  VARBINARY(200) NOT NULL,
    unit  BIGINT         NOT NULL,
    owner VARBINARY(200) NOT NULL,
    `until` BIGINT       NOT NULL,
    PRIMARY KEY (name, unit)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

-- Who writes outputs with an order key locks a row of this table: the servers have no locks
-- by name that end with a transaction. Keys share rows, which costs nothing but waiting.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}outbox_lock (
    slot INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

INSERT IGNORE INTO {schema.}{prefix}outbox_lock (slot)
SELECT a.n + 16 * b.n + 256 * c.n FROM
(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7
UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15) a,
(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7
UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15) b,
(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) c;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (3, 1, 'outbox');
