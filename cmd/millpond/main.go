// Command millpond shows and repairs messages that have failed or are in quarantine.
//
// Results go to standard output, everything else to standard error. The exit code is 0 if
// everything is done, 1 after an error, 2 after a usage error, 3 if nothing matched, 4 if only part
// could be done, and 5 if doctor found something.
//
// No content of a message reaches the output as a control sequence, except the payload with
// --payload raw.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/millpond-go/millpond/stores/dynamodb"
	_ "github.com/millpond-go/millpond/stores/postgres"
	_ "github.com/millpond-go/millpond/stores/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, newConsole(), os.Args[1:]))
}
