package text_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// What may be shown to anybody has nothing that a server or a handler says.
func TestKnownWordsHoldNoValues(t *testing.T) {
	t.Parallel()
	value := errors.New(`ERROR: the card "4711" is refused (SQLSTATE P0001)`)
	for want, err := range map[string]error{
		"": fmt.Errorf("postgres: %w", value),
		"stores: not committed; stores: the transaction that the message shared with others is lost": errors.Join(
			fmt.Errorf("postgres: %w: %w", stores.ErrNotCommitted, value), stores.ErrBatchLost, stores.ErrNotCommitted),
		"stores: commit outcome is unknown": fmt.Errorf("postgres: %w: the card 4711: %w", stores.ErrCommitUnknown, io.EOF),
	} {
		if got := text.Known(err); got != want {
			t.Errorf("%v is shown as %q, want %q", err, got, want)
		}
	}
	if got := text.Known(nil); got != "" {
		t.Error(got)
	}
}
