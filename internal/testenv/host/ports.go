package host

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

// FreePort returns a port of 127.0.0.1 that nobody listens on. It lies below the
// range from which the kernel takes ports for outgoing connections, so that a server
// which is down for a moment finds its port still free. Another process may be
// faster: a server that cannot bind it should be started again with another one.
func FreePort() (int, error) {
	const lowest, attempts = 10_000, 100
	span := max(outgoingPorts()-lowest, 1000)
	var last error
	for range attempts {
		port := lowest + rand.IntN(span) // #nosec G404 -- any will do
		listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			last = err
			continue
		}
		if last = listener.Close(); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("host: no free port: %w", last)
}

// outgoingPorts returns the lowest port that the kernel gives to outgoing connections.
func outgoingPorts() int {
	lowest := 32768 // Linux; other systems begin higher
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(b), &lowest)
	}
	return lowest
}
