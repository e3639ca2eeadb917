package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

func (p *program) outboxCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "outbox",
		Short: "Messages to be published: list, show, stats, retry, discard, replay",
		Long: `Messages that committed transactions have written for publishing: messages that wait for a relay,
dead letters that their destination has refused, and the history, if a relay keeps one.`,
	}, p.outputList(), p.outputShow(), p.outputStats(),
		p.outputChangeCommand(retryOutputs), p.outputChangeCommand(discardOutputs), p.outputChangeCommand(replayOutputs))
}

// outputRecord is a line of outbox ls and outbox show. Only outbox show has metadata and payload.
type outputRecord struct {
	Number      int64              `json:"number"`
	CopyOf      int64              `json:"copy_of,omitempty"`
	State       stores.OutputState `json:"state"`
	MessageID   text               `json:"message_id"`
	Destination text               `json:"destination"`
	Type        text               `json:"type,omitempty"`
	OrderKey    *text              `json:"order_key,omitempty"`
	Blocks      bool               `json:"blocks,omitempty"` // the others of its order key wait
	Attempts    int                `json:"attempts"`
	Error       text               `json:"error,omitempty"`
	CreatedAt   time.Time          `json:"created_at"`
	FailedAt    time.Time          `json:"failed_at,omitzero"`
	PublishedAt time.Time          `json:"published_at,omitzero"`
	TraceParent string             `json:"traceparent,omitempty"`
	contentRecord
}

func outputOf(o stores.OutputRow) outputRecord {
	r := outputRecord{
		Number: o.Number, CopyOf: o.CopyOf, State: o.State, MessageID: text(o.ID), Destination: text(o.Destination), Type: text(o.Type), Blocks: o.Blocks,
		Attempts: o.Attempts, Error: text(o.Error), CreatedAt: o.CreatedAt.UTC(), TraceParent: o.TraceParent.String(),
		contentRecord: contentOf(o.Topic, "", "", o.Codec, o.Bytes, o.Metadata, o.Unreadable),
	}
	if o.OrderKey != nil {
		key := text(o.OrderKey)
		r.OrderKey = &key
	}
	switch o.State {
	case stores.OutputFailed:
		r.FailedAt = o.EndedAt.UTC()
	case stores.OutputPublished:
		r.PublishedAt = o.EndedAt.UTC()
	case stores.OutputPending:
	}
	return r
}

var outputColumns = columns{
	{"NUMBER", "the number that outbox show, retry, discard and replay take; the order in which messages are published"},
	{"STATE", "pending: to be published; failed: refused for good; published: in the history"},
	{"DESTINATION", "the relay's publisher for it; -: the one without a name"},
	{"TOPIC", "the topic at the destination"},
	{"ID", "the message's id"},
	{"KEY", "its order key; with a !: later messages of the key wait for this dead letter"},
	{"ATTEMPTS", "how often it was refused"},
	{"AT", "when it was written, given up or published"},
	errorColumn,
}

var outputStates = []string{string(stores.OutputPending), string(stores.OutputFailed), string(stores.OutputPublished)}

// outputSelection has the flags that select outputs.
type outputSelection struct {
	state, destination, topic, kind, errorContains string
	id, orderKey, since, until                     string
	unnamed                                        bool // the destination without a name
}

// bind binds the flags. Without states the state is fixed.
func (s *outputSelection) bind(cmd *cobra.Command, states ...string) {
	f := cmd.Flags()
	if len(states) > 0 {
		f.StringVar(&s.state, "state", states[0], "in this `state`: "+strings.Join(states, ", "))
		complete(cmd, "state", states...)
	}
	f.StringVar(&s.destination, "destination", "", "for this `destination`")
	f.BoolVar(&s.unnamed, "no-destination", false, "for the destination without a name")
	f.StringVar(&s.topic, "topic", "", "for this `topic`")
	f.StringVar(&s.kind, "type", "", "of this `type`")
	f.StringVar(&s.errorContains, "error-contains", "", "whose last error contains this `text`, byte by byte")
	f.StringVar(&s.id, "id", "", "with this message `id`")
	f.StringVar(&s.orderKey, "order-key", "", "with this order `key`")
	f.StringVar(&s.since, "since", "", "written, given up or published at this `time` or later: an age such as 2h or 7d, or RFC 3339")
	f.StringVar(&s.until, "until", "", "written, given up or published at this `time` or earlier")
}

// filter returns what the flags and the numbers among the arguments select, and which of them were
// given.
func (s *outputSelection) filter(cmd *cobra.Command, args []string, now time.Time) (f stores.OutputFilter, chosen []string, err error) {
	f = stores.OutputFilter{State: stores.OutputState(s.state), Topic: s.topic, Type: s.kind, ErrorContains: s.errorContains, ID: s.id}
	if s.destination != "" || s.unnamed {
		f.Destination = &s.destination
	}
	if s.orderKey != "" {
		f.OrderKey = []byte(s.orderKey)
	}
	if f.Numbers, err = numbers(args); err != nil {
		return f, nil, err
	}
	if f.Since, f.Until, err = parseSpan(s.since, s.until, now); err != nil {
		return f, nil, err
	}
	switch {
	case !slices.Contains(outputStates, s.state):
		return f, nil, usagef("--state is %q: use %s", s.state, strings.Join(outputStates, ", "))
	case s.destination != "" && s.unnamed:
		return f, nil, usagef("--destination and --no-destination exclude each other")
	}
	if len(args) > 0 {
		chosen = append(chosen, "numbers")
	}
	for _, name := range []string{"destination", "no-destination", "topic", "type", "error-contains", "id", "order-key", "since", "until"} {
		if cmd.Flags().Changed(name) {
			chosen = append(chosen, "--"+name)
		}
	}
	return f, chosen, nil
}

// withOutbox is withStore for stores with an outbox.
func (p *program) withOutbox(do func(ctx context.Context, s stores.OutboxInspector, args []string) error) func(*cobra.Command, []string) error {
	return p.withStore(func(ctx context.Context, st store, args []string) error {
		s, ok := st.(stores.OutboxInspector)
		if !ok {
			return errors.New("this store has no outbox")
		}
		return do(ctx, s, args)
	})
}

func (p *program) outputList() *cobra.Command {
	var s outputSelection
	var g page
	cmd := explained(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List messages of the outbox, the latest first",
		Example: `  millpond outbox ls
  millpond outbox ls --state failed --destination kafka-eu
  millpond outbox ls --state published --since 1h --topic orders -o jsonl`,
		Args: noArguments,
	}, outputColumns, exits{exitOK: "done; the list may be empty"})
	s.bind(cmd, outputStates...)
	g.bind(cmd, "messages")
	cmd.RunE = p.withOutbox(func(ctx context.Context, st stores.OutboxInspector, _ []string) error {
		f, _, err := s.filter(cmd, nil, p.now())
		if err != nil {
			return err
		}
		if err := g.check(); err != nil {
			return err
		}
		l := p.newList(outputColumns)
		return pages(ctx, p, g, l, "such messages in the outbox",
			func(ctx context.Context, before int64, limit int) ([]stores.OutputRow, error) {
				return st.Outputs(ctx, stores.OutputQuery{OutputFilter: f, Before: before, Limit: limit})
			},
			func(o stores.OutputRow) int64 {
				l.add(outputOf(o), p.outputCells(o)...)
				return o.Number
			})
	})
	return cmd
}

func (p *program) outputCells(o stores.OutputRow) []string {
	key, at := cut(printable(string(o.OrderKey)), 50), o.CreatedAt
	if o.Blocks {
		key += " !"
	}
	if !o.EndedAt.IsZero() {
		at = o.EndedAt
	}
	return []string{
		strconv.FormatInt(o.Number, 10), string(o.State), destination(o.Destination), cut(printable(o.Topic), 50), cut(printable(o.ID), 50), key,
		count(o.Attempts), p.ago(at), cut(printable(firstLine(o.Error)), shownError),
	}
}

func destination(name string) string {
	if name == "" {
		return "-"
	}
	return cut(printable(name), 50)
}

func (p *program) outputShow() *cobra.Command {
	var v payloadView
	cmd := explained(&cobra.Command{
		Use:     "show NUMBER",
		Short:   "Show all of a message in the outbox: error, metadata, payload",
		Example: "  millpond outbox show 4711",
		Args:    oneNumber("message"),
	}, nil, exits{exitNothing: "there is no such message"})
	v.bind(cmd)
	cmd.RunE = p.withOutbox(func(ctx context.Context, st stores.OutboxInspector, args []string) error {
		if err := v.check(p); err != nil {
			return err
		}
		n, err := numbers(args)
		if err != nil {
			return err
		}
		o, err := answer(ctx, p, func(ctx context.Context) (stores.OutputRow, error) { return st.Output(ctx, n[0]) })
		if err != nil {
			return notFound(err, "there is no such message in the outbox: without a history, what is published is deleted")
		}
		r := outputOf(o)
		r.Payload, r.PayloadTruncated = v.cut(o.Payload)
		r.PayloadNil = tombstone(o.Payload, o.Codec, stores.Facts{})
		return p.showKept(r, v, o.Payload, func(w io.Writer) { p.outputText(w, o, v) })
	})
	return cmd
}

func (p *program) outputText(w io.Writer, o stores.OutputRow, v payloadView) {
	f := newFields(w)
	f.add("number", strconv.FormatInt(o.Number, 10))
	f.add("state", string(o.State))
	if o.CopyOf != 0 {
		f.add("copy of", strconv.FormatInt(o.CopyOf, 10))
	}
	f.add("id", o.ID)
	f.add("destination", destination(o.Destination))
	f.add("topic", o.Topic)
	f.add("type", o.Type)
	f.add("order key", string(o.OrderKey))
	if o.Blocks {
		f.add("blocks", "the others of its order key wait until it is retried or discarded")
	}
	f.add("attempts", count(o.Attempts))
	f.add("written", p.exactly(o.CreatedAt))
	switch o.State {
	case stores.OutputFailed:
		f.add("given up", p.exactly(o.EndedAt))
	case stores.OutputPublished:
		f.add("published", p.exactly(o.EndedAt))
	case stores.OutputPending:
	}
	f.addNil(tombstone(o.Payload, o.Codec, stores.Facts{}))
	f.add("codec", o.Codec)
	f.add("traceparent", o.TraceParent.String())
	if o.Unreadable != nil {
		f.add("unreadable", o.Unreadable.Error())
	}
	f.close()
	if o.Error != "" {
		section(w, "last error", printableLines(o.Error))
	}
	metadataText(w, o.Metadata)
	v.text(w, o.Payload, o.Bytes)
}

// outputCountRecord is a line of outbox stats.
type outputCountRecord struct {
	State       stores.OutputState `json:"state"`
	Destination text               `json:"destination"`
	Count       int                `json:"count"`
	More        bool               `json:"more"`       // there are more than the count
	OldestAge   float64            `json:"oldest_age"` // in seconds
}

var outputCountColumns = columns{
	{"STATE", "pending, failed or published, as in outbox ls"},
	{"DESTINATION", "the relay's publisher for it; -: the one without a name"},
	{"COUNT", "how many there are; with a +: at least this many"},
	{"OLDEST", "how long ago the oldest was written, given up or published"},
}

func (p *program) outputStats() *cobra.Command {
	return explained(&cobra.Command{
		Use:   "stats",
		Short: "Count what is in the outbox, by state and destination",
		Args:  noArguments,
		RunE: p.withOutbox(func(ctx context.Context, st stores.OutboxInspector, _ []string) error {
			counts, err := answer(ctx, p, func(ctx context.Context) ([]stores.OutputCount, error) {
				return st.OutputCounts(ctx, p.countLimit, stores.OutputPending, stores.OutputFailed, stores.OutputPublished)
			})
			if err != nil {
				return err
			}
			l := p.newList(outputCountColumns)
			for _, c := range counts {
				l.add(outputCountRecord{c.State, text(c.Destination), c.N, c.More, c.Age.Seconds()},
					string(c.State), destination(c.Destination), atLeast(c.N, c.More), p.ago(p.now().Add(-c.Age)))
			}
			if l.rows == 0 {
				_, _ = io.WriteString(p.err, "the outbox is empty\n")
			}
			return l.close()
		}),
	}, outputCountColumns, nil)
}
