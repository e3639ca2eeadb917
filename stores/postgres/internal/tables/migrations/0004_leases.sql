-- Who has the lease of a message whose handler runs, until due_at.
ALTER TABLE {schema.}{prefix}failure ADD COLUMN holder pg_catalog.text;

-- Steps of a message's handler that are done, with their results. They are guarded by the
-- version of its failure, and gone when it is completed.
CREATE TABLE {schema.}{prefix}once (
    consumer   bigint NOT NULL,
    message_id pg_catalog.bytea NOT NULL,
    name       pg_catalog.text  NOT NULL,
    at         pg_catalog.timestamptz NOT NULL DEFAULT clock_timestamp(),
    result     pg_catalog.bytea NOT NULL,
    PRIMARY KEY (consumer, message_id, name)
);

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (4, 1, 'leases');
