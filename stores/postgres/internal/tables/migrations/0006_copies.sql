-- copy_of is the number that the source of a copy has in the history: operators publish messages
-- again.
ALTER TABLE {schema.}{prefix}outbox ADD COLUMN copy_of pg_catalog.int8;
ALTER TABLE {schema.}{prefix}outbox_history ADD COLUMN copy_of pg_catalog.int8;
ALTER TABLE {schema.}{prefix}outbox_failed ADD COLUMN copy_of pg_catalog.int8;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (6, 1, 'copies');
