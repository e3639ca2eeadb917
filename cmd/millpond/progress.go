package main

import (
	"fmt"
	"strings"
)

// progress is a bar on the standard error, if that is a terminal.
type progress struct {
	p     *program
	did   string
	total int
	more  bool // total is a bound
	width int  // of what stands there
}

func (p *program) newProgress(did string, total int, more bool) *progress {
	return &progress{p: p, did: did, total: total, more: more}
}

// show replaces what was shown before. Spaces wipe it out, so that any terminal will do.
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

// end wipes the bar out.
func (b *progress) end() {
	if b.width > 0 {
		fmt.Fprintf(b.p.err, "\r%*s\r", b.width, "")
	}
}
