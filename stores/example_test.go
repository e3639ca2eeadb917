package stores_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millpond-go/millpond/stores"
	_ "github.com/millpond-go/millpond/stores/sqlite" // for sqlite:// URLs
)

// The URL decides which database is used. The program imports the adapter.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "millpond")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	store, err := stores.Open(ctx, "sqlite://"+filepath.Join(dir, "billing.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()

	capabilities := store.Capabilities()
	fmt.Println(capabilities.System, "with one writer:", capabilities.SingleWriter)

	// Output: sqlite with one writer: true
}
