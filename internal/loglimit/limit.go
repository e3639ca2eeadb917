// Package loglimit keeps frequent failures from filling the log, and counts the lines that
// it leaves out.
package loglimit

import (
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	// Logged lines of one kind are logged Within a time; the others are counted.
	Logged = 5
	Within = time.Minute
	// Kinds bounds the number of kinds; those beyond it share one.
	Kinds = 1000
)

// Kind identifies log lines that say the same.
type Kind struct {
	Consumer stores.Consumer
	Result   string
	Cause    string // of errors that differ in ids and numbers only
}

// Limit counts lines by their kind. The zero value is ready to use. It is safe for
// concurrent use.
type Limit struct {
	mu    sync.Mutex
	kinds map[Kind]*window
}

type window struct{ lines, left int }

// Pass reports whether to log a line. If not, the line is counted, and tell gets the count
// when the time is over.
func (l *Limit) Pass(kind Kind, tell func(left int)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, open := l.kinds[kind]
	if !open {
		if l.kinds == nil {
			l.kinds = make(map[Kind]*window)
		}
		if len(l.kinds) >= Kinds {
			kind = Kind{}
			w, open = l.kinds[kind]
		}
	}
	if !open {
		w = &window{}
		l.kinds[kind] = w
	}
	if w.lines < Logged {
		if w.lines == 0 {
			time.AfterFunc(Within, func() { l.close(kind, tell) })
		}
		w.lines++
		return true
	}
	w.left++
	return false
}

func (l *Limit) close(kind Kind, tell func(left int)) {
	l.mu.Lock()
	left := l.kinds[kind].left
	delete(l.kinds, kind)
	l.mu.Unlock()
	if left > 0 {
		tell(left)
	}
}
