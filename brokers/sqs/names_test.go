package sqs

import (
	"strings"
	"testing"
)

func TestQueueFor(t *testing.T) {
	t.Parallel()
	const prefix = "arn:aws:sns:eu-central-1:123456789012"
	for _, c := range []struct{ template, sns, topic, group, want string }{
		{"", "", "orders", "stock", "orders"},
		{"", "", "orders.fifo", "stock", "orders.fifo"},
		{"", "", "orders.placed", "stock", "orders-placed-456a4dba"},
		{"", "", "https://sqs.eu-central-1.amazonaws.com/1/orders", "stock", "https://sqs.eu-central-1.amazonaws.com/1/orders"},
		{"", "", "arn:aws:sqs:eu-central-1:1:orders", "stock", "arn:aws:sqs:eu-central-1:1:orders"},
		{"", "", prefix + ":orders", "stock", "orders-stock"},
		{"", prefix, "orders.fifo", "stock", "orders-stock.fifo"},
		{"prod-{topic}.fifo", "", "orders", "stock", "prod-orders.fifo"},
		{"{group}_{topic}", prefix, "orders", "stock", "stock_orders"},
	} {
		config := Config{Queue: c.template, SNS: c.sns}
		if got := config.queueFor(c.topic, c.group); got != c.want {
			t.Errorf("%+v became %q", c, got)
		}
	}
}

func TestQueueNamesAreValidAndApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	seen := map[string]string{}
	for _, name := range []string{"a.b", "a/b", "a b", "a☃b", long, long + "y", "a-b"} {
		for _, fifo := range []bool{false, true} {
			got := queueName(name, fifo)
			if len(got) > longestQueueName || strings.Trim(strings.TrimSuffix(got, fifoSuffix), queueNameCharacters) != "" || isFIFO(got) != fifo {
				t.Errorf("%q became %q", name, got)
			}
			if other, taken := seen[got]; taken {
				t.Errorf("%q and %q became %q", name, other, got)
			}
			seen[got] = name
		}
	}
}
