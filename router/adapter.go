package router

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/stores"
)

const (
	module     = "github.com/millpond-go/millpond"
	instantAck = "github.com/ThreeDotsLabs/watermill/message/router/middleware.InstantAck"
)

// adapters are this module's packages by the schemes that they open.
var adapters = map[string]string{
	"memory":          "brokers/memory",
	"kafka":           "brokers/kafka",
	"kafka+watermill": "brokers/kafka/official",
	"amqp":            "brokers/amqp",
	"amqps":           "brokers/amqp",
	"amqp+watermill":  "brokers/amqp/official",
	"amqps+watermill": "brokers/amqp/official",
	"sqs":             "brokers/sqs",
	"sqs+watermill":   "brokers/sqs/official",
	"postgres":        "stores/postgres",
	"postgresql":      "stores/postgres",
	"postgres+sql":    "stores/postgres/sqldb",
	"postgresql+sql":  "stores/postgres/sqldb",
	"mysql":           "stores/mysql",
	"sqlite":          "stores/sqlite",
	"dynamodb":        "stores/dynamodb",
}

// adapter returns an error for a scheme that no imported package opens.
func (c *Config) adapter(u located) error {
	raw, kind, registered := u.url, u.kind, u.mux.Schemes()
	scheme, _, _ := strings.Cut(raw.Reveal(), ":") // it is a valid URL
	scheme = strings.ToLower(scheme)
	if slices.Contains(registered, scheme) {
		return nil
	}
	setting := c.named(u.path)
	if path, ok := adapters[scheme]; ok && strings.HasPrefix(path, kind) {
		return fmt.Errorf("router: %s %s: the program does not import the adapter of %s: add import _ %q", setting, raw, scheme, module+"/"+path)
	}
	var known []string
	for name, path := range adapters {
		if strings.HasPrefix(path, kind) {
			known = append(known, name)
		}
	}
	if scheme == "mariadb" && kind == "store" {
		return fmt.Errorf("router: %s %s: MariaDB is opened as mysql://, by %s", setting, raw, module+"/"+adapters["mysql"])
	}
	if best, ok := field.Nearest(scheme, known); ok {
		return fmt.Errorf("router: %s %s: no adapter opens %q: did you mean %s? (It is opened by %s.)", setting, raw, scheme, best, module+"/"+adapters[best])
	}
	there := strings.Join(registered, ", ")
	if there == "" {
		there = "none"
	}
	return fmt.Errorf("router: %s %s: no adapter opens %q: import its package (imported: %s)", setting, raw, scheme, there)
}

// wrongStore recognizes a typed handler of another store, such as postgres.Handler on sqlite://,
// by the file that contains the function. It does not recognize a wrapped handler, whose first
// message fails with stores.ErrNoTx.
func wrongStore(h message.NoPublishHandlerFunc, store stores.Store) (fix string) {
	here := fileOf(wrongStore)
	root := strings.TrimSuffix(here, "router/adapter.go")
	written, ok := strings.CutPrefix(fileOf(h), root+"stores/")
	if !ok || root == here || strings.HasSuffix(written, "_test.go") {
		return ""
	}
	helper := path.Dir(written)
	t := reflect.TypeOf(store)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	leaf, ours := strings.CutPrefix(t.PkgPath(), module+"/stores/")
	if helper == "." || !ours || leaf == helper {
		return ""
	}
	return fmt.Sprintf("it is made by %s.Handler, and the store is of package stores/%s: use %s.Handler, or another store.url", path.Base(helper), leaf, path.Base(leaf))
}

// fileOf returns the file that contains a function. Its name is no help, because a function
// literal of an inlined function is named after the caller.
func fileOf(f any) string {
	of := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	if of == nil {
		return ""
	}
	file, _ := of.FileLine(of.Entry())
	return file
}

func functionName(f any) string {
	if of := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); of != nil {
		return of.Name()
	}
	return ""
}
