package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

// Staged are statements that an attempt sends with its COMMIT. It acts as their Sender.
type Staged []Statement

// Send implements Sender. It only collects the statement.
func (s *Staged) Send(_ context.Context, statement Statement) (int64, error) {
	*s = append(*s, statement)
	return 0, nil
}

// Stage is Emit for an attempt that commits later.
func (t *Tables) Stage(s *Staged, outputs []stores.Output) error {
	return t.Emit(context.Background(), s, outputs, false)
}
