-- purged_through was set at announced_at. late_time is the oldest that the broker has
-- delivered lately; until stale_until an operator lets all stale deliveries be quarantined.
ALTER TABLE {schema.}{prefix}consumer ADD COLUMN announced_at BIGINT;

ALTER TABLE {schema.}{prefix}consumer ADD COLUMN late_time BIGINT;

ALTER TABLE {schema.}{prefix}consumer ADD COLUMN late_at BIGINT;

ALTER TABLE {schema.}{prefix}consumer ADD COLUMN stale_until BIGINT;

INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (5, 1, 'retention');
