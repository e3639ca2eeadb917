package mysql

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The statements of a batch. MySQL's procedures take the messages in one binary value.

const (
	savepoint       = "SAVEPOINT millpond_member" // it replaces the previous member's
	savepointThere  = "RELEASE SAVEPOINT millpond_member"
	rollbackToSaved = "ROLLBACK TO SAVEPOINT millpond_member"
)

// claimAll makes the claims of a batch, which are sorted, and reports which were won. None of them
// waits for a lock.
func (c *conn) claimAll(ctx context.Context, t *texts, all []claimed) (won []bool, err error) {
	won = make([]bool, len(all))
	if t.maria {
		_, err := execText(ctx, c.native, string(t.claimTogether(nil, all)))
		switch number(err) {
		case duplicateEntry, lockWaitTimeout, claimLost: // at least one key is not free: each by itself
		default:
			for i := range won {
				won[i] = err == nil
			}
			return won, err
		}
	}
	rows, err := c.native.QueryContext(ctx, string(t.claimEach(nil, all)), nil)
	if err != nil {
		return nil, err
	}
	var row [1]driver.Value
	if err = rows.Next(row[:]); err == nil {
		said := shown(row[0])
		if len(said) != len(all) {
			err = fmt.Errorf("the server answered for %d claims, and %d were sent", len(said), len(all))
		}
		for i := range min(len(said), len(won)) {
			won[i] = said[i] == '1'
		}
	}
	return won, errors.Join(err, rows.Close())
}

// claimTogether inserts all rows on MariaDB, or none. It is an error if a key is taken, or if a
// purge may have removed a key's row.
func (t *texts) claimTogether(b []byte, all []claimed) []byte {
	var oldest int64
	for i := range all {
		if at := all[i].time; at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	if oldest != 0 {
		b = put(b, "BEGIN NOT ATOMIC IF NOT ", t.stale, all[0].consumer, " AND purged_through > ", oldest,
			") THEN SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = ", int64(claimLost), "; END IF; ")
	}
	b = put(b, t.insert, "VALUES ")
	for i := range all {
		c := &all[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		b = put(b, "(", c.consumer, ", ", c.id, ", 1, "+now+", ", c.token, ", ", c.fingerprint, ", ", c.trace, ")")
	}
	if oldest != 0 {
		b = put(b, "; END")
	}
	return b
}

// claimEach makes each claim separately, and returns a digit for each: 1 if it is won. If a lock
// wait timeout rolled back earlier claims, the completion notices.
func (t *texts) claimEach(b []byte, all []claimed) []byte {
	if !t.maria {
		var packed []byte
		for i := range all {
			c := &all[i]
			packed = appendLength(packed, c.id)
			packed = append(packed, byte(len(c.fingerprint)), byte(len(c.trace)))  // #nosec G115 -- columns of 34 and 25 bytes
			packed = binary.BigEndian.AppendUint64(packed, uint64(max(c.time, 0))) // #nosec G115 -- not negative
			packed = append(append(append(packed, c.id...), c.fingerprint...), c.trace...)
		}
		return put(b, t.callBatchClaim, all[0].consumer, ", ", all[0].token, ", ", packed, ")")
	}
	b = put(b, "BEGIN NOT ATOMIC DECLARE taken INT; DECLARE won VARCHAR(1024) DEFAULT ''; DECLARE CONTINUE HANDLER FOR ",
		int64(duplicateEntry), ", ", int64(lockWaitTimeout), " SET taken = 1; ")
	for i := range all {
		b = put(t.claim(put(b, "SET taken = 0; "), &all[i]), "; SET won = CONCAT(won, IF(taken, 0, ROW_COUNT() = 1)); ")
	}
	return put(b, "SELECT won; END")
}

// unclaim deletes the claim of a member.
func (t *texts) unclaim(b []byte, c *claimed) []byte {
	return put(t.key(put(b, t.remove), c.consumer, c.id), " AND token = ", c.token, " AND status = 1")
}

// undo undoes a member's effects and claim on MariaDB, in one statement. It is an error if the
// savepoint or the claim is gone.
func (t *texts) undo(b []byte, c *claimed) []byte {
	b = put(b, "BEGIN NOT ATOMIC ", rollbackToSaved, "; ")
	return put(t.unclaim(b, c), "; CASE ROW_COUNT() WHEN 1 THEN DO 0; END CASE; END")
}

// completeAll completes exactly the claims that are kept, deletes those that did not run, and only
// then commits. On MariaDB it puts before in front.
func (t *texts) completeAll(b, before []byte, kept, unrun []*claimed) []byte {
	if !t.maria {
		var packed []byte
		for i, c := range slices.Concat(kept, unrun) {
			verdict := byte(1)
			if i >= len(kept) {
				verdict = 0
			}
			packed = append(appendLength(append(packed, verdict), c.id), c.id...)
		}
		return put(b, t.callBatchComplete, kept[0].consumer, ", ", kept[0].token, ", ", int64(len(kept)), ", ", packed, ")")
	}
	b = append(put(b, "BEGIN NOT ATOMIC "), before...)
	for _, c := range unrun {
		b = put(t.unclaim(b, c), "; ")
	}
	b = put(b, t.updateAll, kept[0].consumer, " AND token = ", kept[0].token, " AND status = 1 AND message_id IN (")
	for i, c := range kept {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = put(b, c.id)
	}
	return put(b, "); CASE ROW_COUNT() WHEN ", int64(len(kept)), " THEN COMMIT; END CASE; END")
}

func appendLength(b, id []byte) []byte {
	return binary.BigEndian.AppendUint16(b, uint16(len(id))) // #nosec G115 -- a column of 512 bytes
}
