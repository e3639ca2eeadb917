package retention_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// archive writes rows as compressed JSON lines. Each batch is a gzip member of its own, so
// that what was written stays readable if the process dies in the next one.
func archive(to io.Writer) func(context.Context, []stores.PurgedRow) error {
	return func(_ context.Context, rows []stores.PurgedRow) error {
		zipped := gzip.NewWriter(to)
		lines := json.NewEncoder(zipped)
		for _, row := range rows {
			if err := lines.Encode(row); err != nil {
				return err
			}
		}
		return zipped.Close() // a file should be synced here: then the rows are gone
	}
}

// A program with a router of its own purges what its inbox has completed a week ago, and
// archives it.
func ExampleSweeper() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "retention")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "billing.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	file := io.Discard // such as an *os.File, opened to append
	sweeper, err := retention.New(store, retention.Config{
		Service: "billing", // as in InboxConfig
		Windows: retention.Windows{Window: 7 * 24 * time.Hour},
		Archive: archive(file),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error, 1)
	go func() { stopped <- sweeper.Run(ctx) }()
	stop() // with the router
	fmt.Println(<-stopped)
	// Output: <nil>
}

// A request to forget a customer, whose id is the order key of its messages: whatever is kept of
// them goes, and the archive is told, which has what was purged before.
func ExampleErase() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "erase")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "billing.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	places, err := retention.Erase(ctx, store, retention.Erasure{
		OrderKey:   []byte("customer-4711"),
		Unfinished: true, // also what still waits, whose work is never done then
		Actor:      "privacy desk", Reason: "request 17",
		Archive: func(_ context.Context, e retention.Erasure) error {
			fmt.Printf("the archive forgets %s\n", e.OrderKey)
			return nil
		},
	})
	for _, p := range places {
		fmt.Printf("%s: %d erased, %d busy; %q\n", p.Place, p.Erased, p.Busy, p.PassedBy)
	}
	fmt.Println(err)
	// Output:
	// the archive forgets customer-4711
	// quarantine: 0 erased, 0 busy; "it has no order keys"
	// messages: 0 erased, 0 busy; ""
	// outbox pending: 0 erased, 0 busy; ""
	// outbox failed: 0 erased, 0 busy; ""
	// outbox published: 0 erased, 0 busy; ""
	// <nil>
}
