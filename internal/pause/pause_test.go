package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !pause.Sleep(ctx, time.Second) || pause.Sleep(ctx, time.Hour) {
			t.Error("it does not end with the context alone")
		}
	})
}
