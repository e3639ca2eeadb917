package amqp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// server describes the server of a connection.
type server struct {
	product, version string
	major, minor     int
}

// newServer reads the server's description. A server without a version counts as an old one.
func newServer(properties amqp091.Table) server {
	s := server{}
	s.product, _ = properties["product"].(string)
	s.version, _ = properties["version"].(string)
	numbers := strings.SplitN(s.version, ".", 3)
	if len(numbers) >= 2 && s.product == "RabbitMQ" {
		s.major, _ = strconv.Atoi(numbers[0])
		s.minor, _ = strconv.Atoi(numbers[1])
	}
	return s
}

func (s server) String() string { return s.product + " " + s.version }

// telling reports whether quorum queues tell a nack, which does not count, from a reject, which
// does, and delay both themselves. Before RabbitMQ 4.3 they do neither.
func (s server) telling() bool { return s.major > 4 || s.major == 4 && s.minor >= 3 }

// behaviour says, for the log, how the server handles given-back messages.
func (s server) behaviour(t *Topology) string {
	limit := fmt.Sprintf("after %d deliveries a message is a dead letter", t.DeliveryLimit+1)
	switch {
	case t.AsIs:
		limit = "the delivery limit of its queues is not known"
	case t.QueueType == QueueClassic:
		return "classic queues count no deliveries; delays are made by retry queues"
	}
	if s.telling() {
		return limit + "; a nack for \"not now\" does not count; delays are the server's, longer ones are made by retry queues"
	}
	return limit + "; every nack without a delay counts, and every lost connection; delays are made by retry queues"
}
