package brokers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/brokers"
)

func TestSubscriberConfigDefaults(t *testing.T) {
	got, err := brokers.SubscriberConfig{Group: "g"}.WithDefaults("broker")
	want := brokers.SubscriberConfig{Group: "g", InFlight: 1, DrainTimeout: 30 * time.Second, Logger: watermill.NopLogger{}}
	if err != nil || got != want {
		t.Errorf("the defaults are %+v (%v)", got, err)
	}
	want = brokers.SubscriberConfig{Group: "g", InFlight: 7, DrainTimeout: time.Minute, Logger: watermill.NewStdLogger(false, false)}
	if got, err := want.WithDefaults("broker"); err != nil || got != want {
		t.Errorf("%+v became %+v (%v)", want, got, err)
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
