package boundaries

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func TestBoundaries(t *testing.T) {
	readTree(t)
	graph, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if graph[module+"/stores"].ImportPath == "" {
		t.Fatalf("go list did not list %s/stores", module)
	}
	for _, problem := range Check(graph, rules) {
		t.Error(problem)
	}
}

// readTree lists the directories of the module. `go test` reuses a result while the
// files that the test itself has looked at stay the same; what `go list` reads in
// its own process it does not see.
func readTree(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every rule is shown a tree that breaks it.
func TestBoundariesBroken(t *testing.T) {
	const (
		pgx    = "github.com/jackc/pgx/v5"
		sqlite = "modernc.org/sqlite"
	)
	for _, test := range []struct {
		name    string
		imports map[string]string // package: what it imports
		want    string            // "": nothing is wrong
	}{
		{
			"nothing wrong",
			map[string]string{"./stores": "./internal/urlmux context", "./stores/postgres": "./stores ./internal/sqlstore " + pgx},
			"",
		},
		{
			"store contract imports Watermill",
			map[string]string{"./stores": "github.com/ThreeDotsLabs/watermill/message"},
			`./stores: must not link github.com/ThreeDotsLabs/watermill/message (rule "store contract")`,
		},
		{
			"store contract imports another package of ours",
			map[string]string{"./stores": "./internal/sqlstore"},
			`./stores: must not link ./internal/sqlstore (rule "store contract")`,
		},
		{
			"broker contract imports a store",
			map[string]string{"./brokers": "./stores"},
			`./brokers: must not link ./stores (rule "broker contract")`,
		},
		{
			"middleware imports a driver through another package",
			map[string]string{"./middleware/keys": "golang.org/x/sync/singleflight", "golang.org/x/sync/singleflight": pgx},
			`./middleware/keys: must not link github.com/jackc/pgx/v5 (rule "middleware"): ` + module + "/middleware/keys → golang.org/x/sync/singleflight → github.com/jackc/pgx/v5",
		},
		{
			"middleware imports an adapter",
			map[string]string{"./middleware": "./stores/sqlite"},
			`./middleware: must not link ./stores/sqlite (rule "middleware")`,
		},
		{
			"adapter imports another's driver",
			map[string]string{"./stores/postgres": sqlite},
			`./stores/postgres: must not link modernc.org/sqlite (rule "postgres store")`,
		},
		{
			"adapter imports another",
			map[string]string{"./stores/sqlite": "./stores/postgres"},
			`./stores/sqlite: must not link ./stores/postgres (rule "sqlite store")`,
		},
		{
			"adapter imports the middleware",
			map[string]string{"./stores/sqlite/internal/x": "./middleware"},
			`./stores/sqlite/internal/x: must not link ./middleware (rule "sqlite store")`,
		},
		{
			"broker imports a store",
			map[string]string{"./brokers/memory": "./stores"},
			`./brokers/memory: must not link ./stores (rule "memory broker")`,
		},
		{
			"shared SQL code imports a driver",
			map[string]string{"./internal/sqlstore": pgx},
			`./internal/sqlstore: must not link github.com/jackc/pgx/v5 (rule "shared by the SQL stores")`,
		},
		{
			"URL mux imports a contract",
			map[string]string{"./internal/urlmux": "./stores"},
			`./internal/urlmux: must not link ./stores (rule "shared by the contracts")`,
		},
		{
			"conformance suite imports an adapter",
			map[string]string{"./stores/storetest": "./stores/sqlite testing"},
			`./stores/storetest: must not link ./stores/sqlite (rule "conformance suites")`,
		},
		{
			"two drivers in a library package",
			map[string]string{"./middleware": pgx + " " + sqlite},
			`./middleware: must not link more than one of github.com/jackc/pgx/..., modernc.org/sqlite/... (rule "one driver a package")`,
		},
		{
			"two drivers in a program",
			map[string]string{"./examples/quickstart": "./stores/sqlite ./stores/postgres", "./stores/postgres": pgx, "./stores/sqlite": sqlite},
			"",
		},
		{
			"store links the test framework",
			map[string]string{"./stores": "testing"},
			`./stores: must not link testing (rule "no tests in what ships")`,
		},
		{
			"program links the conformance suite",
			map[string]string{"./cmd/millpond": "./stores/storetest"},
			`./cmd/millpond: must not link ./stores/storetest (rule "no tests in what ships")`,
		},
		{
			"program starts test servers",
			map[string]string{"./examples/quickstart": "./internal/testenv/postgres"},
			`./examples/quickstart: must not link ./internal/testenv/postgres (rule "no test servers in what ships")`,
		},
		{
			"test code links what it likes",
			map[string]string{"./internal/crash": "testing ./internal/testenv " + pgx + " " + sqlite},
			"",
		},
		{
			"a package without a rule",
			map[string]string{"./stores/oracle": "./stores"},
			"./stores/oracle: no rule says what it may link",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems := Check(graphOf(test.imports), rules)
			if test.want == "" {
				if len(problems) > 0 {
					t.Errorf("want no problem, got %q", problems)
				}
				return
			}
			for _, problem := range problems {
				if strings.HasPrefix(problem, test.want) {
					return
				}
			}
			t.Errorf("want a problem starting with\n%s\ngot %q", test.want, problems)
		})
	}
}

// graphOf builds what Load would return.
func graphOf(imports map[string]string) Graph {
	graph := make(Graph)
	full := func(path string) string { return strings.Replace(path, "./", module+"/", 1) }
	var add func(path string) Package
	add = func(path string) Package {
		if p, done := graph[full(path)]; done {
			return p
		}
		p := Package{ImportPath: full(path), Standard: !strings.Contains(path, ".")}
		if strings.HasPrefix(path, "./") {
			p.Module = &Module{Path: module, Main: true}
		}
		for imported := range strings.FieldsSeq(imports[path]) {
			p.Imports = append(p.Imports, full(imported))
			p.Deps = append(append(p.Deps, full(imported)), add(imported).Deps...)
		}
		graph[p.ImportPath] = p
		return p
	}
	for path := range imports {
		add(path)
	}
	return graph
}
