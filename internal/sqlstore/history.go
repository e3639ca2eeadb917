package sqlstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// kept is what a record needs of a failure's existing row.
type kept struct {
	presumed            bool
	content             stores.ContentState
	attempts, uncounted int
	budgetAt, lastAt    int64
	class               stores.Class
	cause, error        string
	topic, coordinates  string
	orderKey, history   []byte
}

// read reads and locks the row in that version. A first failure has no row.
func (r *record) read(ctx context.Context, tx Sender, number, revision int64) error {
	r.was = kept{budgetAt: r.now, history: []byte("[]")}
	if r.Version == 0 {
		return nil
	}
	k, text := &r.was, readFailure
	if r.Lapsed {
		text += lapsed
	}
	lock := func() (bool, error) {
		found, err := First(ctx, tx, Statement{Text: r.t.fixed(text + `{free}`), Args: []any{r.consumer, r.Key.ID, number, revision}},
			&k.presumed, &k.content, &k.attempts, &k.uncounted, &k.budgetAt, &k.lastAt, &k.class, &k.cause, &k.error, &k.topic, &k.coordinates, &k.orderKey, &k.history)
		if r.t.refused(err) {
			return false, nil
		}
		return found, err
	}
	locked, err := lock()
	if err == nil && !locked && !r.t.Dialect().Alone {
		locked, err = Again(ctx, lock)
	}
	if err == nil && !locked {
		err = stores.ErrChanged
	}
	return err
}

// Remember appends this attempt to a stored history, and returns the attempts up to the limit, or
// nil if there are none. presumed: the attempt of lastAt began and did not end.
func Remember(history []byte, f *stores.Failure, presumed bool, lastAt, now int64) []byte {
	var attempts []stores.AttemptRecord
	if json.Unmarshal(history, &attempts) != nil {
		attempts = nil // an unreadable history must not prevent the record
	}
	switch {
	case !f.Start:
		attempts = append(attempts, stores.AttemptRecord{At: time.UnixMicro(now).UTC(), Class: f.Class, Error: Text(f.Error, stores.MaxHistoryErrorBytes)})
	case presumed: // the previous attempt never ended
		attempts = append(attempts, stores.AttemptRecord{At: time.UnixMicro(lastAt).UTC(), Class: stores.ClassCrash})
	}
	if more := len(attempts) - stores.MaxHistory; more > 0 {
		attempts = attempts[more:]
	}
	if len(attempts) == 0 {
		return nil
	}
	b, _ := json.Marshal(attempts) //nolint:errchkjson // of texts and times
	return b
}
