package sqlstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// Relative is a server that speaks another server's protocol, but lacks features that a store
// needs. It often accepts the statements without effect, so it is recognized by name.
type Relative struct {
	Mark  string // part of the server's own description, in small letters
	Name  string
	Lacks string
}

// ErrUnusable: a server can never be used, so it is not asked again.
var ErrUnusable = errors.New("the server cannot be used")

// RelativeError refuses a kind of server.
type RelativeError struct {
	Relative
	Use string // what to use instead
}

func (e *RelativeError) Error() string {
	return fmt.Sprintf("the server is %s, which lacks %s; use %s", e.Name, e.Lacks, e.Use)
}

// Is matches ErrUnusable.
func (e *RelativeError) Is(target error) bool { return target == ErrUnusable }

// RefuseRelatives returns an error if a server describes itself as one of them.
func RefuseRelatives(all []Relative, said, use string) error {
	said = strings.ToLower(said)
	for _, r := range all {
		if strings.Contains(said, r.Mark) {
			return &RelativeError{r, use}
		}
	}
	return nil
}

// AnyServer reports what the start would have refused without the order to use any server.
func AnyServer(add Adder, product string, refusals ...error) {
	add(stores.SeverityWarning, "millpond_server=any is set", "the start does not check that the server is "+product+", and that its locks work", "remove it, unless you know that this server is fit")
	for _, err := range refusals {
		if errors.Is(err, ErrUnusable) {
			add(stores.SeverityError, err.Error(), "without millpond_server=any the store refuses to run on it", "as the finding says")
		}
	}
}
