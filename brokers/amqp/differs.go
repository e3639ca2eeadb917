package amqp

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// inequivalent matches the server's error about a declaration that differs: the argument, its queue
// or exchange, and the existing value.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for (queue|exchange) '([^']*)'.* current is (?:the value )?(?:'([^']*)'|(none))`)

// setInstead returns the URL parameter that matches the existing declaration, or "" if there is
// none. what is the declared object, such as "queue orders".
func setInstead(what, reason string) string {
	m := inequivalent.FindStringSubmatch(reason)
	if m == nil || m[2] == "queue" && what != "queue "+m[3] {
		return "" // or it is about a secondary queue, which no parameter changes
	}
	argument, value, none := m[1], m[4], m[5] != ""
	switch argument {
	case "x-dead-letter-exchange": // the server compares this argument of quorum queues first
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
