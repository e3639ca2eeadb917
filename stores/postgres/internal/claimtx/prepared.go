package claimtx

import (
	"strconv"

	"github.com/jackc/pgx/v5"
)

// prepared are the statements that a connection keeps for its commits, by their texts: the
// server needs longer to read and plan one than to run it. They are prepared in the trip that
// runs them first.
type prepared struct {
	names map[string]string
	keeps bool
}

const (
	preparedUnder = "millpond" // among what belongs to a connection
	mostPrepared  = 16         // there are few texts
)

// prepared returns those of the transaction's connection. Where a pooler is in between programs
// tell the driver to keep none, and a handler may have changed the session.
func (t *Tx) prepared() *prepared {
	if t.session.marked.Load() {
		return &prepared{}
	}
	data := t.conn.PgConn().CustomData()
	p, ok := data[preparedUnder].(*prepared)
	if !ok {
		c := t.conn.Config()
		p = &prepared{names: make(map[string]string), keeps: c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && c.StatementCacheCapacity > 0}
		data[preparedUnder] = p
	}
	return p
}

// parsing is a statement that is prepared now; one without a name for this time alone.
type parsing struct{ text, name string }

// name returns the name of a statement, and whether it is to be prepared now.
func (p *prepared) name(text string, now []parsing) (name string, prepare bool) {
	if name, known := p.names[text]; known {
		return name, false
	}
	named := 0
	for _, s := range now {
		if s.name != "" && s.text == text {
			return s.name, false
		}
		if s.name != "" {
			named++
		}
	}
	if n := len(p.names) + named; p.keeps && n < mostPrepared {
		return "millpond_" + strconv.Itoa(n), true
	}
	return "", true
}

// complete notes that the server has prepared the first of those that are prepared now.
func (p *prepared) complete(now []parsing) (left []parsing) {
	if len(now) == 0 {
		return nil
	}
	if now[0].name != "" {
		p.names[now[0].text] = now[0].name
	}
	return now[1:]
}

// forget is for a connection of which somebody else has discarded statements.
func (p *prepared) forget() {
	clear(p.names)
	p.keeps = false
}
