package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

func (p *program) messageCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:     "msg",
		Aliases: []string{"message", "messages"},
		Short:   "Messages that have failed: list, show, retry, discard, resolve",
	}, p.messageList(), p.messageShow(), p.changeCommand(retry), p.changeCommand(discard), p.changeCommand(resolve))
}

// page has the flags of a list in pages.
type page struct {
	limit  int
	before int64
}

// pageSize is how many rows are read at once.
const pageSize = 500

func (g *page) bind(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&g.limit, "limit", 50, "at most this `number` of "+what)
	cmd.Flags().Int64Var(&g.before, "before", 0, "only numbers below this `number`, such as the last one of the previous page")
}

func (g *page) check() error {
	if g.limit <= 0 {
		return usagef("--limit is %d: use a positive number", g.limit)
	}
	if g.before < 0 {
		return usagef("--before is %d: use a number that is listed", g.before)
	}
	return nil
}

// pages reads rows until there are enough, and prints how to continue.
func pages[T any](ctx context.Context, p *program, g page, l *list, what string, read func(ctx context.Context, before int64, limit int) ([]T, error), add func(T) int64) error {
	last, more := g.before, true
	for left := g.limit; left > 0 && more; {
		size := min(left, pageSize)
		rows, err := answer(ctx, p, func(ctx context.Context) ([]T, error) { return read(ctx, last, size) })
		if err != nil {
			return err
		}
		for _, row := range rows {
			last = add(row)
		}
		left -= len(rows)
		more = len(rows) == size
	}
	if err := l.close(); err != nil {
		return err
	}
	switch {
	case l.rows == 0:
		fmt.Fprintf(p.err, "no %s\n", what)
	case more:
		fmt.Fprintf(p.err, "there may be more: --before %d\n", last)
	}
	return nil
}

var messageColumns = columns{
	{"NUMBER", "the number that msg show, retry, discard and resolve take"},
	{"STATUS", "pending: it will be tried again; failed: for good; discarded: by an operator"},
	consumerColumn, idColumn, causeColumn, classColumn,
	{"ATTEMPTS", "the attempts that count; (+2): and two that do not, such as those that a restart interrupted"},
	{"FAILED", "when the last attempt failed"},
	{"NEXT", "when the next attempt is due; overdue: for so long no retry worker has taken it; on redelivery: when the broker delivers it again; reserved: a retry worker has it; leased: that process runs its handler, or has died; -: never"},
	errorColumn,
}

func (p *program) messageList() *cobra.Command {
	var s selection
	var g page
	cmd := explained(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List messages that have failed, the latest first",
		Example: `  millpond msg ls --consumer billing/charge --since 2h
  millpond msg ls --status discarded
  millpond msg ls --error-contains "connection refused" --limit 1000 -o jsonl`,
		Args: noArguments,
	}, messageColumns, unknownConsumer)
	s.bind(cmd)
	g.bind(cmd, "messages")
	cmd.RunE = p.withStore(func(ctx context.Context, st store, _ []string) error {
		f, _, err := s.filter(nil, p.now())
		if err != nil {
			return err
		}
		if err := g.check(); err != nil {
			return err
		}
		if err := s.known(ctx, p, st); err != nil {
			return err
		}
		l := p.newList(messageColumns)
		return pages(ctx, p, g, l, "such messages",
			func(ctx context.Context, before int64, limit int) ([]stores.Message, error) {
				return st.Messages(ctx, stores.MessageQuery{Filter: f, Before: before, Limit: limit})
			},
			func(m stores.Message) int64 {
				l.add(recordOf(m), p.messageCells(m)...)
				return m.Number
			})
	})
	return cmd
}

const shownError = 80 // characters, in a table

func (p *program) messageCells(m stores.Message) []string {
	next := "-"
	switch {
	case m.Status != stores.StatusPending:
	case m.Reserved && m.Holder != "":
		next = "leased until " + dueIn(max(m.DueIn, 0)) + " by " + cut(printable(m.Holder), 40)
	case m.Reserved:
		next = "reserved"
	case m.Placement == stores.PlacementRedelivered && m.DueIn < shownAsNow:
		next = "on redelivery"
	default:
		next = dueIn(m.DueIn)
	}
	return []string{
		strconv.FormatInt(m.Number, 10), m.Status.String(), m.Key.Consumer.String(), cut(showID(m.Key.ID), 50), m.Cause,
		string(m.Class), attempts(m), p.ago(m.LastAt), next, cut(printable(firstLine(m.Error)), shownError),
	}
}

// attempts returns "3", or "3 (+2)" if two more do not count.
func attempts(m stores.Message) string {
	if m.Uncounted > 0 {
		return fmt.Sprintf("%s (+%s)", count(m.Attempts), count(m.Uncounted))
	}
	return count(m.Attempts)
}

func (p *program) messageShow() *cobra.Command {
	var s selection
	var v payloadView
	cmd := explained(&cobra.Command{
		Use:   "show NUMBER | --consumer SERVICE/HANDLER --id ID",
		Short: "Show all of a message: error, history of attempts, metadata, payload",
		Long: `Show all of a message: error, history of attempts, metadata, payload.

A message that has failed has a number. --consumer and --id also find a
completed one, of which only key, status, fingerprint and trace are kept.`,
		Example: `  millpond msg show 4711
  millpond msg show --consumer billing/charge --id u:0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11
  millpond msg show 4711 --payload raw > payload.bin`,
		Args: oneArgument,
	}, nil, exits{exitNothing: "there is no such message, or the store knows no such consumer"})
	s.bindConsumer(cmd, "the `consumer` of the message: service/handler")
	s.bindID(cmd)
	v.bind(cmd)
	cmd.RunE = p.withStore(func(ctx context.Context, st store, args []string) error {
		if err := v.check(p); err != nil {
			return err
		}
		find, err := s.find(st, args)
		if err != nil {
			return err
		}
		if err := s.known(ctx, p, st); err != nil {
			return err
		}
		m, err := answer(ctx, p, find)
		if err != nil {
			return notFound(err, "there is no such message")
		}
		r := recordOf(m)
		r.Payload, r.PayloadTruncated = v.cut(m.Payload)
		r.PayloadNil = nilKept(m)
		return p.showKept(r, v, m.Payload, func(w io.Writer) { p.messageText(w, m, v) })
	})
	return cmd
}

// find returns a function that reads the one message that was selected.
func (s *selection) find(st store, args []string) (func(context.Context) (stores.Message, error), error) {
	if len(args) == 1 {
		if s.consumer+s.id != "" {
			return nil, usagef("a number names one message: leave out --consumer and --id")
		}
		n, err := numbers(args)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (stores.Message, error) { return st.Message(ctx, n[0]) }, nil
	}
	id, err := parseID(s.id)
	if err != nil {
		return nil, err
	}
	service, handler, err := s.splitConsumer()
	if err != nil {
		return nil, err
	}
	if s.consumer != "" && handler == "" {
		return nil, usagef("--consumer is %q, which names no handler: write service/handler", s.consumer)
	}
	if id == nil || handler == "" {
		return nil, usagef("which message? Give its number, or --consumer service/handler and --id")
	}
	key := stores.Key{Consumer: stores.Consumer{Service: service, Handler: handler}, ID: id}
	return func(ctx context.Context) (stores.Message, error) { return st.Find(ctx, key) }, nil
}

func (p *program) messageText(w io.Writer, m stores.Message, v payloadView) {
	f := newFields(w)
	if m.Number != 0 {
		f.add("number", strconv.FormatInt(m.Number, 10))
	}
	f.add("consumer", m.Key.Consumer.String())
	f.add("id", showID(m.Key.ID))
	f.add("status", p.standing(m))
	f.add("completed", p.exactly(m.CompletedAt))
	if m.Number != 0 {
		f.add("attempts", attempts(m))
		if m.Redrives > 0 {
			f.add("retried by operators", count(m.Redrives))
		}
		f.add("failed first", p.exactly(m.FirstAt))
		f.add("failed last", p.exactly(m.LastAt))
		f.add("class", string(m.Class))
		f.add("cause", m.Cause)
		f.add("content", strings.ReplaceAll(m.Content.String(), "_", " "))
	}
	f.add("topic", m.Topic)
	f.add("coordinates", m.Coordinates)
	p.addFacts(f, m.Facts)
	f.addNil(nilKept(m))
	f.add("order key", string(m.OrderKey))
	f.add("uuid", m.UUID)
	f.add("codec", m.Codec)
	f.add("fingerprint", fingerprint(m.Fingerprint))
	f.add("traceparent", m.TraceParent.String())
	if m.Unreadable != nil {
		f.add("unreadable", m.Unreadable.Error())
	}
	f.close()
	if m.Error != "" {
		section(w, "last error", printableLines(m.Error))
	}
	if len(m.History) > 0 {
		section(w, "attempts, the latest first", p.history(m.History))
	}
	metadataText(w, m.Metadata)
	v.text(w, m.Payload, m.PayloadBytes)
}

func nilKept(m stores.Message) bool {
	return m.Content == stores.ContentKept && m.Unreadable == nil && tombstone(m.Payload, m.Codec, m.Facts)
}

// standing returns the status, and what comes next.
func (p *program) standing(m stores.Message) string {
	status := m.Status.String()
	due := exactTime(m.DueAt) + " (" + dueIn(m.DueIn) + ")" // by the database's clock
	switch {
	case m.Reserved && m.Holder != "":
		status += ", leased by " + m.Holder + ", which runs it or is dead, until " + due + " unless it renews that"
	case m.Status == stores.StatusPending && m.Placement == stores.PlacementRedelivered:
		status += ", waits for the broker to deliver it again, due " + due
	case m.Reserved:
		status += ", reserved by a retry worker, which may be running it, until " + due + " unless it renews that"
	case m.Status == stores.StatusPending:
		status += ", next attempt " + due
	}
	if m.Presumed {
		status += "; how the last attempt ended is not known: its process may have died, or may still run it"
	}
	return status
}

func (p *program) history(records []stores.AttemptRecord) string {
	var b strings.Builder
	f := newFields(&b)
	for _, a := range slices.Backward(records) {
		f.add(p.exactly(a.At), printable(string(a.Class))+"  "+cut(printable(firstLine(a.Error)), shownError))
	}
	f.close()
	return b.String()
}
