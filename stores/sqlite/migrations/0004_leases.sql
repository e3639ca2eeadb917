-- Who has the lease of a message whose handler runs, until due_at.
ALTER TABLE {schema.}{prefix}failure ADD COLUMN holder TEXT;

-- Steps of a message's handler that are done, with their results. They are guarded by the
-- version of its failure, and gone when it is completed.
CREATE TABLE {schema.}{prefix}once (
    consumer   INTEGER NOT NULL,
    message_id BLOB    NOT NULL,
    name       TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    result     BLOB    NOT NULL,
    PRIMARY KEY (consumer, message_id, name)
) STRICT, WITHOUT ROWID;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (4, 1, 'leases');
