package cutoff_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/millpond-go/millpond/brokers/sqs/internal/cutoff"
)

func TestCutStopsOneSubscriberOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var wires cutoff.Wires[string]
	send := func(client cutoff.Client) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	dying, living := wires.Through("dying", server.Client()), wires.Through("living", server.Client())
	if err := errors.Join(send(dying), send(living)); err != nil {
		t.Fatal(err)
	}
	wires.Cut("dying")
	if err := send(dying); !errors.Is(err, cutoff.ErrCut) {
		t.Errorf("one that is cut off got through: %v", err)
	}
	if err := send(living); err != nil {
		t.Error(err)
	}
}
