package router

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

func parse(text []byte) (tree *ast.File, err error) {
	defer func() {
		if recover() != nil { // the panic's value may quote the text
			err = errors.New("the parser gave up")
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// noYAML reports why and where the parser gave up.
func (d *document) noYAML(err error) {
	e, ok := errors.AsType[syntaxError](err)
	if !ok {
		d.badf(d.at(0), "", "it is not YAML")
		return
	}
	at := d.at(0)
	if token := e.GetToken(); token != nil && token.Position != nil {
		at = d.at(token.Position.Line)
	}
	message, _, _ := strings.Cut(e.GetMessage(), `"`) // quoted text comes from the file
	message = strings.TrimRight(message, " :")
	if strings.Contains(message, "mapping value is not allowed") {
		message += ": put a value with a colon into quotes"
	}
	d.badf(at, "", "it is not YAML: %s", message)
}

// syntaxError is implemented by the parser's errors, whose Error methods quote the file.
type syntaxError interface {
	error
	GetMessage() string
	GetToken() *token.Token
}
