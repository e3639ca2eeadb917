CREATE PROCEDURE {schema.}{prefix}batch_complete (c BIGINT, t BIGINT, kept INT, members LONGBLOB)
    SQL SECURITY INVOKER
    COMMENT 'millpond 1: completes the rows that this transaction has claimed, takes back the others, and commits only then'
BEGIN
    DECLARE pos INT DEFAULT 1;
    DECLARE completed, ids INT DEFAULT 0;
    DECLARE m VARBINARY(512);
    WHILE pos <= LENGTH(members) DO
        SET ids = ORD(SUBSTRING(members, pos + 1, 1)) * 256 + ORD(SUBSTRING(members, pos + 2, 1)), m = SUBSTRING(members, pos + 3, ids);
        IF ORD(SUBSTRING(members, pos, 1)) = 1 THEN
            UPDATE {schema.}{prefix}inbox SET status = 2 WHERE consumer = c AND message_id = m AND token = t AND status = 1;
            SET completed = completed + ROW_COUNT();
        ELSE
            DELETE FROM {schema.}{prefix}inbox WHERE consumer = c AND message_id = m AND token = t AND status = 1;
        END IF;
        SET pos = pos + 3 + ids;
    END WHILE;
    IF completed <> kept THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {lost}, MESSAGE_TEXT = 'millpond: a claim of this transaction is gone';
    END IF;
    COMMIT;
END
