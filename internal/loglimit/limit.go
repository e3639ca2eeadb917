// Package loglimit keeps a failure that happens a thousand times a second from filling the
// log, without hiding how often it happens.
package loglimit

import (
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	// Logged lines of the same kind are logged Within a time; the rest is counted.
	Logged = 5
	Within = time.Minute
	// Kinds bounds the kinds; those beyond share one.
	Kinds = 1000
)

// Kind is what makes two lines of the log say the same.
type Kind struct {
	Consumer stores.Consumer
	Result   string
	Cause    string // of errors that differ in ids and numbers only
}

// Limit counts lines by their kind. The zero value is ready to use, by any number of
// goroutines.
type Limit struct {
	mu    sync.Mutex
	kinds map[Kind]*window
}

type window struct{ lines, left int }

// Pass reports whether a line is to be logged. If not it is counted, and tell is called
// with the number of those left out when the time is over.
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
