package outage_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/internal/outage"
)

func TestOutageIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := watermill.NewCaptureLogger()
		o := outage.New(log, "Receiving")
		o.Over()
		if o.Problem() != nil || len(log.Captured()) != 0 {
			t.Error("nothing has failed yet")
		}
		for range 3 {
			<-time.After(40 * time.Second)
			if pause := o.Failed(io.EOF); pause <= 0 || pause > 10*time.Second {
				t.Errorf("a pause of %s", pause)
			}
		}
		if o.Problem() != io.EOF {
			t.Error(o.Problem())
		}
		o.Over()
		if errs, infos := len(log.Captured()[watermill.ErrorLogLevel]), len(log.Captured()[watermill.InfoLogLevel]); errs != 2 || infos != 1 || o.Problem() != nil {
			t.Errorf("%d errors, %d lines", errs, infos)
		}
		if pause := o.Failed(io.EOF); pause > 200*time.Millisecond {
			t.Errorf("the pauses go on at %s", pause)
		}
	})
}
