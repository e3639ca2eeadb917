package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// selection has the flags that select messages.
type selection struct {
	consumer, cause, class, topic, errorContains string
	since, until, id, orderKey                   string
	status                                       []string
	reserved                                     bool
}

// failedStatuses are the statuses of messages that have failed.
var failedStatuses = []string{"pending", "failed", "discarded"}

func (s *selection) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	s.bindConsumer(cmd, "of this `consumer`: service/handler, or all of a service")
	s.bindID(cmd)
	f.StringVar(&s.cause, "cause", "", "of this `cause`, as cause ls shows it; of all consumers unless --consumer is given")
	f.StringVar(&s.class, "class", "", "whose last error is of this `class`, such as transient or permanent")
	f.StringVar(&s.topic, "topic", "", "from this `topic`")
	f.StringVar(&s.orderKey, "order-key", "", "with this order `key`")
	f.StringVar(&s.errorContains, "error-contains", "", "whose last error contains this `text`, byte by byte")
	f.StringVar(&s.since, "since", "", "last failed at this `time` or later: an age such as 2h or 7d, or RFC 3339")
	f.StringVar(&s.until, "until", "", "last failed at this `time` or earlier")
	f.StringSliceVar(&s.status, "status", nil, "in one of these `states`: pending, failed, discarded; default: pending,failed")
	f.BoolVar(&s.reserved, "reserved", false, "reserved by a retry worker or under a lease, even if that process is dead")
	complete(cmd, "status", failedStatuses...)
	complete(cmd, "class", string(stores.ClassTransient), string(stores.ClassPermanent), string(stores.ClassContention),
		string(stores.ClassTimeout), string(stores.ClassPanic), string(stores.ClassConduct), string(stores.ClassOutputs),
		string(stores.ClassCrash), string(stores.ClassInterrupted), string(stores.ClassUnknown), string(stores.ClassOrder),
		string(stores.ClassUnreadable), string(stores.ClassUnconfirmed))
}

func (s *selection) bindConsumer(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&s.consumer, "consumer", "", usage)
}

func (s *selection) bindID(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.id, "id", "", "with this message `id`, as it is shown (u:…, h:…), or as hex:…")
}

// filter returns what the flags and the numbers among the arguments select, and which of them were
// given, such as "--cause" and "numbers".
func (s *selection) filter(args []string, now time.Time) (f stores.Filter, chosen []string, err error) {
	f = stores.Filter{Class: stores.Class(s.class), Cause: s.cause, Topic: s.topic, ErrorContains: s.errorContains, Reserved: s.reserved}
	if s.orderKey != "" {
		f.OrderKey = []byte(s.orderKey)
	}
	f.Service, f.Handler, err = s.splitConsumer()
	if err != nil {
		return f, nil, err
	}
	if f.Numbers, err = numbers(args); err != nil {
		return f, nil, err
	}
	if f.ID, err = parseID(s.id); err != nil {
		return f, nil, err
	}
	if f.Since, f.Until, err = parseSpan(s.since, s.until, now); err != nil {
		return f, nil, err
	}
	for _, name := range s.status {
		status, ok := stores.ParseStatus(name)
		if !ok || status < stores.StatusPending {
			return f, nil, usagef("--status is %q: use %s", name, strings.Join(failedStatuses, ", "))
		}
		f.Status = append(f.Status, status)
	}
	return f, s.chosen(args), nil
}

func (s *selection) chosen(args []string) []string {
	var names []string
	for _, part := range []struct {
		name  string
		given bool
	}{
		{"numbers", len(args) > 0},
		{"--consumer", s.consumer != ""},
		{"--cause", s.cause != ""},
		{"--class", s.class != ""},
		{"--topic", s.topic != ""},
		{"--order-key", s.orderKey != ""},
		{"--error-contains", s.errorContains != ""},
		{"--since", s.since != ""},
		{"--until", s.until != ""},
		{"--id", s.id != ""},
		{"--status", len(s.status) > 0},
		{"--reserved", s.reserved},
	} {
		if part.given {
			names = append(names, part.name)
		}
	}
	return names
}

// splitConsumer returns an empty handler if only the service is given.
func (s *selection) splitConsumer() (service, handler string, err error) {
	service, handler, both := strings.Cut(s.consumer, "/") // a handler's name may contain another one
	if s.consumer != "" && (service == "" || both && handler == "") {
		return "", "", usagef("--consumer is %q: use service/handler, or the service alone", s.consumer)
	}
	return service, handler, nil
}

// known returns an error if the store does not know the given consumer: for a misspelt name, an
// empty list would look like a healthy consumer.
func (s *selection) known(ctx context.Context, p *program, st store) error {
	service, handler, err := s.splitConsumer()
	if err != nil || s.consumer == "" {
		return err
	}
	all, err := answer(ctx, p, st.Consumers)
	if err != nil {
		return err
	}
	var names []string
	for _, c := range all {
		if c.Service == service && (handler == "" || c.Handler == handler) {
			return nil
		}
		if name := c.Service; handler == "" && !slices.Contains(names, name) {
			names = append(names, name)
		} else if handler != "" {
			names = append(names, c.String())
		}
	}
	what, there := "consumer", "it has no consumers"
	if handler == "" {
		what, there = "service", "it has no services"
	}
	if len(names) > 0 {
		const most = 20
		there = "it has " + strings.Join(names[:min(most, len(names))], ", ")
		if more := len(names) - most; more > 0 {
			there += fmt.Sprintf(" and %d more", more)
		}
	}
	return nothingf("the store knows no %s %q: %s", what, s.consumer, there)
}

// numbers parses the numbers of messages, or of rows.
func numbers(args []string) ([]int64, error) {
	var numbers []int64
	seen := map[int64]bool{}
	for _, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n <= 0 {
			return nil, usagef("%q is not a number that ls shows; write --consumer and --id for an id", arg)
		}
		if !seen[n] {
			seen[n] = true
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// parseID parses --id. It returns nil if that was not given.
func parseID(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	if digits, ok := strings.CutPrefix(s, "hex:"); ok {
		id, err := hex.DecodeString(digits)
		if err != nil || len(id) == 0 {
			return nil, usagef("--id is %q: hex: takes pairs of hexadecimal digits", s)
		}
		return id, nil
	}
	id, err := keys.Parse(unquoteID(s))
	if err != nil {
		return nil, usagef("--id is %q: %w; or use hex: and message_id_hex of -o json", s, err)
	}
	return id, nil
}

// parseSpan parses --since and --until.
func parseSpan(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = parseTime("--since", since, now); err != nil {
		return from, to, err
	}
	if to, err = parseTime("--until", until, now); err != nil {
		return from, to, err
	}
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		err = usagef("--until is before --since")
	}
	return from, to, err
}

// parseTime parses a time or an age. It returns the zero time if there is none.
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := parseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usagef("%s is %q: use a duration such as 90m, 2h or 7d, or a time such as %s",
			flag, s, now.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// parseDuration is time.ParseDuration, with weeks and days of 24 hours in front.
func parseDuration(s string) (time.Duration, error) {
	var total time.Duration
	rest := s
	for unit, d := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour} {
		number, tail, ok := strings.Cut(rest, "wd"[unit:unit+1])
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 13) // so that nothing overflows
		if err != nil {
			return 0, fmt.Errorf("%q is no duration", s)
		}
		total += time.Duration(n) * d
		rest = tail
	}
	if rest == "" && s != "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	return total + d, err
}
