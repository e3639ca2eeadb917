CREATE PROCEDURE {schema.}{prefix}complete (c BIGINT, id VARBINARY(512), t BIGINT, restore TINYINT)
    SQL SECURITY INVOKER
    COMMENT 'millpond 1: completes the row that this transaction has claimed, and commits only then'
BEGIN
    UPDATE {schema.}{prefix}inbox SET status = 2 WHERE consumer = c AND message_id = id AND token = t AND status = 1;
    IF ROW_COUNT() <> 1 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {lost}, MESSAGE_TEXT = 'millpond: the claim of this transaction is gone';
    END IF;
    COMMIT;
    IF restore THEN
        SET SESSION autocommit = @millpond_autocommit, SESSION wait_timeout = @millpond_idle, SESSION max_execution_time = @millpond_running;
    END IF;
END
