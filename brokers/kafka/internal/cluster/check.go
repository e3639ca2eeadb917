package cluster

import (
	"fmt"
	"net"

	"github.com/millpond-go/millpond/internal/urlquery"
)

// Check reports errors that the fields' tags do not check.
func (a *Access) Check(wrong urlquery.Wrong) {
	if len(a.Brokers) == 0 {
		wrong("Brokers", "empty", "give at least one host:port")
	}
	for _, address := range a.Brokers {
		if host, port, err := net.SplitHostPort(address); err != nil && address == "" || err == nil && (host == "" || port == "") {
			wrong("Brokers", fmt.Sprintf("%q", a.Brokers), "write host:port")
		}
	}
	if a.SASL == "" && a.Username != "" {
		wrong("Username", fmt.Sprintf("%q", a.Username), "choose a mechanism with Config.SASL, or remove it")
	}
}
