CREATE PROCEDURE {schema.}{prefix}begin (
    c BIGINT, id VARBINARY(512), t BIGINT, f VARBINARY(34), trace VARBINARY(25), ordered VARBINARY(512),
    level_read_committed TINYINT, idle INT, running INT)
    SQL SECURITY INVOKER
    COMMENT 'millpond 1: begins a transaction with a claim, on a connection that is not the store''s own'
BEGIN
    COMMIT;
    SET @millpond_autocommit = @@SESSION.autocommit, @millpond_idle = @@SESSION.wait_timeout, @millpond_running = @@SESSION.max_execution_time;
    IF level_read_committed THEN
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    ELSE
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    END IF;
    SET SESSION autocommit = 0;
    IF idle > 0 THEN
        SET SESSION wait_timeout = idle, SESSION max_execution_time = running;
    END IF;
    IF t IS NOT NULL AND level_read_committed THEN
        INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent)
        SELECT c, id, 1, {now}, t, f, trace FROM DUAL
        WHERE NOT EXISTS (SELECT 1 FROM {schema.}{prefix}inbox WHERE consumer = c AND message_id = id FOR SHARE NOWAIT)
        AND (ordered IS NULL OR NOT EXISTS (
            SELECT 1 FROM {schema.}{prefix}failure e WHERE e.consumer = c AND e.order_key = ordered AND e.status = 3 AND {blocks}));
    ELSEIF t IS NOT NULL THEN -- to look would lock what is not there
        INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent)
        SELECT c, id, 1, {now}, t, f, trace FROM DUAL
        WHERE ordered IS NULL OR NOT EXISTS (
            SELECT 1 FROM {schema.}{prefix}failure e WHERE e.consumer = c AND e.order_key = ordered AND e.status = 3 AND {blocks});
    END IF;
END
