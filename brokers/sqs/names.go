package sqs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const fifoSuffix = ".fifo"

// longestQueueName is how long a queue's name may be.
const longestQueueName = 80

const queueNameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

func isFIFO(name string) bool { return strings.HasSuffix(name, fifoSuffix) }

func isURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

// isName reports whether text is the name of a queue in this account and region.
func isName(name string) bool { return !isURL(name) && !strings.HasPrefix(name, "arn:") }

// arn is the parsed Amazon Resource Name of a queue or topic.
type arn struct{ service, account, name string }

func parseARN(text string) (arn, bool) {
	parts := strings.Split(text, ":") // arn:aws:sqs:region:account:name
	if len(parts) != 6 || parts[0] != "arn" || parts[5] == "" {
		return arn{}, false
	}
	return arn{service: parts[2], account: parts[4], name: parts[5]}, true
}

func isTopicARN(text string) bool {
	a, ok := parseARN(text)
	return ok && a.service == "sns"
}

// onlyFIFO reports whether all queues are FIFO queues by their names.
func (c *Config) onlyFIFO() bool {
	if c.Queue != "" {
		return isFIFO(c.Queue)
	}
	for _, name := range c.Queues {
		if !isFIFO(name) {
			return false
		}
	}
	return len(c.Queues) > 0
}

// topicARN returns the ARN of a topic's SNS topic, or "" if the topic is a queue.
func (c *Config) topicARN(topic string) string {
	switch {
	case isTopicARN(topic):
		return topic
	case c.SNS != "" && isName(topic):
		return c.SNS + ":" + topic
	default:
		return ""
	}
}

// queueFor returns a group's queue for a topic, by name, URL or ARN.
func (c *Config) queueFor(topic, group string) string {
	template := c.Queue
	if arn := c.topicARN(topic); arn != "" {
		parsed, _ := parseARN(arn)
		topic = parsed.name
		if template == "" {
			template = "{topic}-{group}"
		}
	} else if !isName(topic) {
		return topic
	}
	template = cmp.Or(template, "{topic}")
	base, fifo := strings.CutSuffix(topic, fifoSuffix)
	template, suffix := strings.CutSuffix(template, fifoSuffix)
	name := strings.NewReplacer("{topic}", base, "{group}", group).Replace(template)
	return queueName(name, fifo || suffix)
}

// publishTo returns the queue for publishing to a topic that is not an SNS topic.
func (c *Config) publishTo(topic string) string {
	if !isName(topic) {
		return topic
	}
	if strings.Contains(c.Queue, "{group}") { // not a queue, but the source of the groups' queues
		base, fifo := strings.CutSuffix(topic, fifoSuffix)
		return queueName(base, fifo)
	}
	return c.queueFor(topic, "")
}

// queueName returns a valid name for SQS. A changed name ends in part of its hash, so that no two
// become the same.
func queueName(name string, fifo bool) string {
	longest := longestQueueName
	suffix := ""
	if fifo {
		suffix = fifoSuffix
		longest -= len(suffix)
	}
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(queueNameCharacters, r) {
			return r
		}
		return '-'
	}, name)
	if clean != name || len(clean) > longest {
		sum := sha256.Sum256([]byte(name))
		hash := "-" + hex.EncodeToString(sum[:4])
		clean = clean[:min(len(clean), longest-len(hash))] + hash
	}
	return clean + suffix
}
