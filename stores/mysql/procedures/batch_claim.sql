CREATE PROCEDURE {schema.}{prefix}batch_claim (c BIGINT, t BIGINT, claims LONGBLOB)
    SQL SECURITY INVOKER
    COMMENT 'millpond 1: makes several claims, each if its key is free, and says which'
BEGIN
    DECLARE pos INT DEFAULT 1;
    DECLARE taken, ids, fs, traces INT DEFAULT 0;
    DECLARE seen BIGINT;
    DECLARE m VARBINARY(512);
    DECLARE f VARBINARY(34);
    DECLARE trace VARBINARY(25);
    DECLARE won VARCHAR(1024) DEFAULT '';
    DECLARE CONTINUE HANDLER FOR {duplicate}, {locked} SET taken = 1;
    WHILE pos <= LENGTH(claims) DO
        SET ids = ORD(SUBSTRING(claims, pos, 1)) * 256 + ORD(SUBSTRING(claims, pos + 1, 1)),
            fs = ORD(SUBSTRING(claims, pos + 2, 1)), traces = ORD(SUBSTRING(claims, pos + 3, 1)),
            seen = CONV(HEX(SUBSTRING(claims, pos + 4, 8)), 16, 10), pos = pos + 12,
            m = SUBSTRING(claims, pos, ids), pos = pos + ids,
            f = NULLIF(SUBSTRING(claims, pos, fs), ''), pos = pos + fs,
            trace = NULLIF(SUBSTRING(claims, pos, traces), ''), pos = pos + traces,
            taken = 0;
        INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent)
        SELECT c, m, 1, {now}, t, f, trace FROM DUAL
        WHERE NOT EXISTS (SELECT 1 FROM {schema.}{prefix}inbox i WHERE i.consumer = c AND i.message_id = m FOR SHARE NOWAIT)
        AND (seen = 0 OR NOT EXISTS (SELECT 1 FROM {schema.}{prefix}consumer k WHERE k.id = c AND k.purged_through > seen));
        SET won = CONCAT(won, IF(taken, 0, ROW_COUNT() = 1));
    END WHILE;
    SELECT won;
END
