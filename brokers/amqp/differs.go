package amqp

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// inequivalent is the text of a server that has something declared otherwise: the
// argument, what it belongs to, and the value that it has there.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for (queue|exchange) '([^']*)'.* current is (?:the value )?(?:'([^']*)'|(none))`)

// setInstead says with which parameter of the URL something is declared as it is there; ""
// if there is none. what is what was to be declared, such as "queue orders".
func setInstead(what, reason string) string {
	m := inequivalent.FindStringSubmatch(reason)
	if m == nil || m[2] == "queue" && what != "queue "+m[3] {
		return "" // or it is about a queue that belongs to this one, which parameters do not change
	}
	argument, value, none := m[1], m[4], m[5] != ""
	switch argument {
	case "x-dead-letter-exchange": // of the arguments of quorum queues this one is compared first
		if none {
			return parameter("queue_type", string(QueueClassic), true) + ", if it is a classic one"
		}
		return parameter("queue_type", string(QueueQuorum), value == "")
	case "x-queue-type":
		return parameter("queue_type", value, QueueType(value) == QueueQuorum || QueueType(value) == QueueClassic)
	case "x-delivery-limit":
		n, err := strconv.Atoi(value)
		return parameter("delivery_limit", value, err == nil && n > 0)
	case "x-delayed-retry-min":
		return parameter("retry_delays", "beginning with "+milliseconds(value), !none)
	case "x-delayed-retry-max":
		return parameter("retry_delays", "ending with "+milliseconds(value), !none)
	case "type":
		if kind := ExchangeType(value); kind == ExchangeTopic || kind == ExchangeDirect {
			return fmt.Sprintf("set preset=routing and exchange_type=%s here", kind)
		}
		return parameter("preset", string(PresetPubSub), value == "fanout")
	}
	return ""
}

func parameter(name, value string, exists bool) string {
	if !exists {
		return "it differs in what " + name + " sets"
	}
	return "set " + name + "=" + value + " here"
}

func milliseconds(value string) string {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return value + " ms"
	}
	return (time.Duration(n) * time.Millisecond).String()
}
