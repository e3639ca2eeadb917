CREATE PROCEDURE {schema.}{prefix}look (c BIGINT, id VARBINARY(512), restore TINYINT)
    SQL SECURITY INVOKER
    COMMENT 'millpond 1: looks at what stands in the way of a claim, and rolls back'
BEGIN
    {look};
    ROLLBACK;
    IF restore THEN
        SET SESSION autocommit = @millpond_autocommit, SESSION wait_timeout = @millpond_idle, SESSION max_execution_time = @millpond_running;
    END IF;
END
