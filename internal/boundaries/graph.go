// Package boundaries proves which package links what: contracts link no driver, an
// adapter links its own and no other adapter, and nothing that ships links tests.
// A program then pays for exactly the adapters that it names.
package boundaries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
)

// Package is what `go list` says of one, test files left out.
type Package struct {
	ImportPath string   `json:"ImportPath"`
	Standard   bool     `json:"Standard"` // of the standard library
	Imports    []string `json:"Imports"`
	Deps       []string `json:"Deps"` // all that it links, directly or not
	Module     *Module  `json:"Module"`
}

// Module is where a package comes from; nil for the standard library.
type Module struct {
	Path string `json:"Path"`
	Main bool   `json:"Main"` // the module that is checked
}

// Own reports whether the package belongs to the module that is checked.
func (p Package) Own() bool { return p.Module != nil && p.Module.Main }

// Graph holds packages by import path.
type Graph map[string]Package

// Load lists every package of the module in dir, and all that they link.
func Load(ctx context.Context, dir string) (Graph, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps,Module", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("boundaries: go list: %w\n%s", err, &stderr)
	}
	graph := make(Graph)
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := list.Decode(&p); {
		case errors.Is(err, io.EOF):
			return graph, nil
		case err != nil:
			return nil, fmt.Errorf("boundaries: read go list: %w", err)
		}
		graph[p.ImportPath] = p
	}
}

// own returns the module's packages, by path within the module, in order.
func (g Graph) own() []string {
	var paths []string
	for path, p := range g {
		if p.Own() {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// chain returns one shortest way by which from links to, both included.
func (g Graph) chain(from, to string) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var way []string
			for ; at != ""; at = cameFrom[at] {
				way = append(way, at)
			}
			slices.Reverse(way)
			return way
		}
		for _, next := range g[at].Imports {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return []string{from, to}
}
