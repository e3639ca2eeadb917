-- Who has the lease of a message whose handler runs, until due_at.
ALTER TABLE {schema.}{prefix}failure ADD COLUMN holder VARBINARY(200);

-- Steps of a message's handler that are done, with their results. They are guarded by the
-- version of its failure, and gone when it is completed.
CREATE TABLE IF NOT EXISTS {schema.}{prefix}once (
    consumer   BIGINT         NOT NULL,
    message_id VARBINARY(512) NOT NULL,
    name       VARBINARY(200) NOT NULL,
    at         BIGINT         NOT NULL,
    result     LONGBLOB       NOT NULL,
    PRIMARY KEY (consumer, message_id, name)
) ENGINE = InnoDB, DEFAULT CHARACTER SET utf8mb4, COLLATE utf8mb4_bin;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (4, 1, 'leases');
