package main

import (
	"fmt"
	"strings"
	"time"
)

// progress is a progress bar on standard error, if that is a terminal.
type progress struct {
	p     *program
	did   string
	total int
	more  bool // total is a lower bound
	width int  // width of the text shown now
}

func (p *program) newProgress(did string, total int, more bool) *progress {
	return &progress{p: p, did: did, total: total, more: more}
}

// show replaces the text. It wipes it with spaces, which every terminal can.
func (b *progress) show(done int) {
	if !b.p.errTTY {
		return
	}
	line := fmt.Sprintf("%s %s of %s", b.did, count(done), atLeast(b.total, b.more))
	if !b.more {
		const width = 30
		filled := width * min(done, b.total) / max(1, b.total)
		line = fmt.Sprintf("[%s%s] %s", strings.Repeat("=", filled), strings.Repeat(" ", width-filled), line)
	}
	fmt.Fprintf(b.p.err, "\r%-*s", b.width, line)
	b.width = len(line)
}

// end wipes the bar.
func (b *progress) end() {
	if b.width > 0 {
		fmt.Fprintf(b.p.err, "\r%*s\r", b.width, "")
	}
}

// saySince says at intervals that something is still running, until end is called.
func (p *program) saySince(did string) (end func()) {
	begun, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(p.sayEvery)
	go func() {
		defer close(stopped)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(p.err, "%s for %v; it may be waiting for another process that migrates, or for a transaction that uses the tables\n", did, time.Since(begun).Round(time.Second))
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
