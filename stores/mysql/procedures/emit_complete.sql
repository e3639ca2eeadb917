CREATE PROCEDURE {schema.}{prefix}emit_complete (
    c BIGINT, id VARBINARY(512), t BIGINT, restore TINYINT, slotted BIGINT,
    size BIGINT, part BIGINT, destined VARBINARY(200), about VARBINARY(1024), kind VARBINARY(200), coded VARBINARY(200),
    named VARBINARY(512), ordered VARBINARY(512), trace VARBINARY(25), meta LONGBLOB, content LONGBLOB)
    SQL SECURITY INVOKER
    COMMENT 'millpond 1: writes an output of the row that this transaction has claimed, and completes it'
BEGIN
    DECLARE locked INT;
    SET SESSION autocommit = 0; -- the handler may have ended the transaction, and let statements commit by themselves
    IF slotted IS NOT NULL THEN
        SELECT slot INTO locked FROM {schema.}{prefix}outbox_lock WHERE slot = slotted FOR UPDATE;
    END IF;
    INSERT INTO {schema.}{prefix}outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id, order_key, traceparent, metadata, payload)
    VALUES ({now}, size, part, destined, about, kind, coded, named, ordered, trace, meta, content);
    CALL {schema.}{prefix}complete(c, id, t, restore);
END
