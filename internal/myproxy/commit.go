package myproxy

import (
	"regexp"
	"strings"
)

// Texts are looked at without what is quoted in them.
var (
	quoted = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|` + "`[^`]*`")

	commitAlone = regexp.MustCompile(`(?i)^\s*commit` + completion + `\s*;?\s*$`)
	commitAmong = regexp.MustCompile(`(?i)(^|;|\b(begin|atomic|then|else|do)\b)\s*commit` + completion + `\s*(;|$)`)
	// stores/mysql completes a message and commits by a procedure of that name.
	calledCommit = regexp.MustCompile(`(?i)^\s*call\s+\S*_complete\s*\(`)
	rollback     = regexp.MustCompile(`(?i)(^|;)\s*rollback` + completion + `\s*;?\s*$`) // not to a savepoint
)

const completion = `(\s+work)?(\s+and\s+(no\s+)?chain)?(\s+(no\s+)?release)?`

// ending is how a text ends its transaction.
type ending struct {
	commit   bool // it has a COMMIT
	alone    bool // and nothing else
	rollback bool // its last statement is a ROLLBACK
}

func endingOf(sql string) ending {
	// Most texts have neither, and some are megabytes long.
	if lower := strings.ToLower(sql); !strings.Contains(lower, "commit") && !strings.Contains(lower, "rollback") && !strings.Contains(lower, "_complete") {
		return ending{}
	}
	bare := quoted.ReplaceAllString(sql, "''")
	return ending{
		commit:   commitAmong.MatchString(bare) || calledCommit.MatchString(bare),
		alone:    commitAlone.MatchString(bare),
		rollback: rollback.MatchString(bare),
	}
}
