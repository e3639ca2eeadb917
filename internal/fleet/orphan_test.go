//go:build unix

package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// parentModes are programs that are themselves parents.
var parentModes = map[string]func() int{
	"endless": func() int { return endless(nil) },
	"endless, one stands still": func() int {
		return endless([]Kill{{Kind: SIGSTOP, After: 50, Pause: time.Hour}})
	},
}

// endless runs a fleet without end, and says "running" once it is well under way.
func endless(kills []Kill) int {
	acks := 0
	_, err := Run(context.Background(), Config{
		Source: func(yield func(Message, error) bool) {
			for i := 0; yield(Message{Topic: "numbers", UUID: fmt.Sprint(i)}, nil); i++ {
			}
		},
		Command: command("ack", os.Getenv(logEnv)),
		Kills:   kills,
		Observe: func(e Event) {
			if e.Kind == EventAcked {
				if acks++; acks == 200 {
					fmt.Fprintln(os.Stderr, "running")
				}
			}
		},
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A parent that is killed leaves no worker behind. All of them share its standard
// error, which reaches its end when the last one is gone.
func TestNoOrphans(t *testing.T) {
	for mode := range parentModes {
		t.Run(mode, func(t *testing.T) {
			path, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			parent := exec.CommandContext(t.Context(), path)
			parent.Env = append(parent.Environ(), modeEnv+"="+mode, logEnv+"="+t.TempDir()+"/log")
			parent.Stderr = w
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			_ = r.SetReadDeadline(time.Now().Add(time.Minute))
			output := bufio.NewReader(r)
			for {
				text, err := output.ReadString('\n')
				if err != nil {
					t.Fatalf("%q, %s", text, err)
				}
				if strings.Contains(text, "running") {
					break
				}
			}
			_ = parent.Process.Kill()
			_ = parent.Wait()
			if rest, err := io.ReadAll(output); err != nil {
				t.Fatalf("a worker is still there: %s\n%s", err, rest)
			}
		})
	}
}
