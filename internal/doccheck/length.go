package doccheck

import (
	"fmt"
	"path"
	"strings"
)

// mostLines is how long a file of product code may be, so that it is read in one sitting.
const mostLines = 400

// checkLength reports product code that CONTRIBUTING.md calls too long.
func checkLength(name, text string) []Problem {
	tests := strings.HasSuffix(name, "_test.go") || strings.Contains(name, "test/") || strings.HasPrefix(name, "internal/")
	if n := strings.Count(text, "\n"); path.Ext(name) == ".go" && !tests && n > mostLines {
		return []Problem{{name, mostLines + 1, fmt.Sprintf("the file has %d lines: give its second idea a file of its own", n)}}
	}
	return nil
}
