package middleware

import (
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	// alikeLogged lines of the same kind are logged within alikeWithin; the rest is counted.
	alikeLogged = 5
	alikeWithin = time.Minute
	// maxAlike bounds the kinds; those beyond share one.
	maxAlike = 1000
)

// alike is what makes two lines of the log say the same.
type alike struct {
	consumer stores.Consumer
	result   Result
	cause    string // of errors that differ in ids and numbers only
}

// logLimit keeps a failure that happens a thousand times a second from filling the log,
// without hiding how often it happens.
type logLimit struct {
	mu    sync.Mutex
	kinds map[alike]*logWindow
}

type logWindow struct{ lines, left int }

// pass reports whether a line is to be logged. If not it is counted, and tell is called
// with the number of those left out when the time is over.
func (l *logLimit) pass(kind alike, tell func(left int)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	window, open := l.kinds[kind]
	if !open {
		if l.kinds == nil {
			l.kinds = make(map[alike]*logWindow)
		}
		if len(l.kinds) >= maxAlike {
			kind = alike{}
			window, open = l.kinds[kind]
		}
	}
	if !open {
		window = &logWindow{}
		l.kinds[kind] = window
	}
	if window.lines < alikeLogged {
		if window.lines == 0 {
			time.AfterFunc(alikeWithin, func() { l.close(kind, tell) })
		}
		window.lines++
		return true
	}
	window.left++
	return false
}

func (l *logLimit) close(kind alike, tell func(left int)) {
	l.mu.Lock()
	left := l.kinds[kind].left
	delete(l.kinds, kind)
	l.mu.Unlock()
	if left > 0 {
		tell(left)
	}
}
