package callback_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/callback"
)

func TestErrorsOnly(t *testing.T) {
	var out bytes.Buffer
	drop := errors.New("not now")
	log := callback.ErrorsOnly(slog.New(slog.NewTextHandler(&out, nil)), drop).With("a", 1).WithGroup("g")
	log.Info("small talk")
	log.Error("given back", slog.Any("err", fmt.Errorf("row 7: %w", drop)))
	require.Empty(t, out.String())
	log.Error("failed", slog.Any("err", errors.New("disk full")))
	require.Contains(t, out.String(), "disk full")
}
