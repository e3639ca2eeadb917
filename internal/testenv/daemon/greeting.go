package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
)

// Greets returns a [Program]'s Ready for a server that speaks first: it waits for as many
// bytes as prefix has. An empty prefix waits for any byte.
func Greets(prefix string) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		if deadline, ok := ctx.Deadline(); ok {
			if err := conn.SetDeadline(deadline); err != nil {
				return err
			}
		}
		greeting := make([]byte, max(1, len(prefix)))
		if _, err := io.ReadFull(conn, greeting); err != nil {
			return err
		}
		if prefix != "" && string(greeting) != prefix {
			return fmt.Errorf("the server begins with %q, want %q", greeting, prefix)
		}
		return nil
	}
}
