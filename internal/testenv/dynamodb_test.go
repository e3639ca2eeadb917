package testenv_test

import (
	"context"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// DynamoDB Local has no option for its address, and would listen on all.
func TestDynamoDBIsSharedAndOnLoopbackAlone(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	one, two := testenv.DynamoDB(t), testenv.DynamoDB(t)
	if one.Endpoint() != two.Endpoint() {
		t.Error(one, two)
	}
	endpoint, err := url.Parse(one.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if !ok || network.IP.IsLoopback() {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(network.IP.String(), endpoint.Port()))
		cancel()
		if err == nil {
			conn.Close()
			t.Errorf("it answers at %s", network.IP)
		}
	}
}
