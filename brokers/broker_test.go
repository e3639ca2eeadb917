package brokers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestSubscriberConfigDefaults(t *testing.T) {
	got, err := brokers.SubscriberConfig{Group: "g"}.WithDefaults("broker")
	want := brokers.SubscriberConfig{Group: "g", InFlight: 1, DrainTimeout: 30 * time.Second, Logger: watermill.NopLogger{}}
	if err != nil || got != want {
		t.Errorf("the defaults are %+v (%v)", got, err)
	}
	want = brokers.SubscriberConfig{Group: "g", InFlight: 7, DrainTimeout: time.Minute, Logger: watermill.NewStdLogger(false, false)}
	got, err = want.WithDefaults("broker")
	want.Logger = got.Logger
	if again, _ := got.WithDefaults("broker"); err != nil || got != want || again != got {
		t.Errorf("%+v became %+v, and then %+v (%v)", want, got, again, err)
	}
}

func TestLoggerThatPanicsLosesItsLine(t *testing.T) {
	log := brokers.PublisherConfig{Logger: testenv.PanickingLogger{}}.WithDefaults().Logger.With(nil)
	log.Error("line", nil, nil)
	log.Info("line", nil)
	log.Debug("line", nil)
	log.Trace("line", nil)
	kept := watermill.NewCaptureLogger()
	log = brokers.PublisherConfig{Logger: kept}.WithDefaults().Logger
	log.With(watermill.LogFields{"a": 1}).Info("line", watermill.LogFields{"b": 2})
	if !kept.Has(watermill.CapturedMessage{Level: watermill.InfoLogLevel, Msg: "line", Fields: watermill.LogFields{"a": 1, "b": 2}}) {
		t.Errorf("%+v", kept.Captured())
	}
}

func TestSubscriberConfigNamesEveryInvalidField(t *testing.T) {
	_, err := brokers.SubscriberConfig{InFlight: -1, DrainTimeout: -1}.WithDefaults("broker")
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, field := range []string{"broker: SubscriberConfig.Group", "broker: SubscriberConfig.InFlight", "broker: SubscriberConfig.DrainTimeout"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}
