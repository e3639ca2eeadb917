package main

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// quarantineRecord is a row of quarantine ls and quarantine show. Only quarantine show has metadata
// and payload.
type quarantineRecord struct {
	Row int64 `json:"row"`
	consumerRecord
	idRecord
	Reason              stores.Reason           `json:"reason"`
	Detail              text                    `json:"detail,omitempty"`
	Status              stores.QuarantineStatus `json:"status"`
	Seen                int                     `json:"seen"`
	FirstAt             time.Time               `json:"first_at,omitzero"`
	LastAt              time.Time               `json:"last_at,omitzero"`
	DecidedAt           time.Time               `json:"decided_at,omitzero"`
	ReleasedID          string                  `json:"released_id,omitempty"` // the id under which it runs
	Fingerprint         string                  `json:"fingerprint,omitempty"`
	ExistingFingerprint string                  `json:"existing_fingerprint,omitempty"` // of the message that already has the id
	OneWay              bool                    `json:"one_way,omitempty"`              // the codec cannot restore it
	contentRecord
}

func quarantinedOf(q stores.QuarantineRow) quarantineRecord {
	r := quarantineRecord{
		Row: q.RowID, consumerRecord: consumerOf(q.Consumer), idRecord: idOf(q.ID), Reason: q.Reason, Detail: text(q.Detail),
		Status: q.Status, Seen: q.Seen, FirstAt: q.FirstAt.UTC(), LastAt: q.LastAt.UTC(), DecidedAt: q.DecidedAt.UTC(),
		Fingerprint: fingerprint(q.Fingerprint), ExistingFingerprint: fingerprint(q.Existing), OneWay: q.OneWay,
		contentRecord: contentOf(q.Topic, q.Coordinates, q.UUID, q.Codec, q.PayloadBytes, q.Metadata, q.Unreadable).withFacts(q.Facts),
	}
	if q.Status == stores.QuarantineReleased {
		r.ReleasedID = showID(stores.ReleasedID(q.RowID))
	}
	return r
}

func (p *program) quarantineCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "quarantine",
		Short: "Messages that could not run safely: list, show, release, reject, reopen",
		Long: `Messages that could not run safely: another message has the same id, there is no id, the message
cannot be read or is too large or too old, or part of its effects may be committed.`,
	}, p.quarantineList(), p.quarantineShow(), p.decideCommand(release), p.decideCommand(reject), p.decideCommand(reopen))
}

var (
	quarantineReasons = []string{
		string(stores.ReasonConflict), string(stores.ReasonNoKey), string(stores.ReasonKeyTooLong), string(stores.ReasonUndecodable),
		string(stores.ReasonTooLarge), string(stores.ReasonAckedEarly), string(stores.ReasonTxCommitted), string(stores.ReasonStale),
	}
	quarantineStatuses = []string{
		string(stores.QuarantineHeld), string(stores.QuarantineReleased), string(stores.QuarantineRejected), string(stores.QuarantineErased),
	}
)

var quarantineColumns = columns{
	rowColumn,
	{"STATUS", "held: no decision yet; released: it runs, or has run; rejected: it never runs; erased: it never runs, and its content is deleted"},
	consumerColumn,
	{"REASON", "why it could not run; docs/operations.md says what to do"},
	idColumn,
	{"TOPIC", "where it came from"},
	{"SEEN", "how often it was delivered"},
	{"LAST", "when it was delivered last"},
	{"DETAIL", "the reason in words, shortened"},
}

var rowColumn = column{"ROW", "the number that quarantine show, release, reject and reopen take"}

func (p *program) quarantineList() *cobra.Command {
	var s selection
	var g page
	var reason, status string
	cmd := explained(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List what is in quarantine, the latest first",
		Example: `  millpond quarantine ls --reason conflict
  millpond quarantine ls --status rejected -o jsonl`,
		Args: noArguments,
	}, quarantineColumns, unknownConsumer)
	s.bindConsumer(cmd, "of this `consumer`: service/handler, or all of a service")
	cmd.Flags().StringVar(&reason, "reason", "", "for this `reason`: "+strings.Join(quarantineReasons, ", "))
	cmd.Flags().StringVar(&status, "status", string(stores.QuarantineHeld), "in this `state`: "+strings.Join(quarantineStatuses, ", "))
	complete(cmd, "reason", quarantineReasons...)
	complete(cmd, "status", quarantineStatuses...)
	g.bind(cmd, "rows")
	cmd.RunE = p.withStore(func(ctx context.Context, st store, _ []string) error {
		service, handler, err := s.splitConsumer()
		if err != nil {
			return err
		}
		if !slices.Contains(quarantineStatuses, status) {
			return usagef("--status is %q: use %s", status, strings.Join(quarantineStatuses, ", "))
		}
		if reason != "" && !slices.Contains(quarantineReasons, reason) {
			return usagef("--reason is %q: use %s", reason, strings.Join(quarantineReasons, ", "))
		}
		if err := g.check(); err != nil {
			return err
		}
		if err := s.known(ctx, p, st); err != nil {
			return err
		}
		l := p.newList(quarantineColumns)
		return pages(ctx, p, g, l, "such messages in quarantine",
			func(ctx context.Context, before int64, limit int) ([]stores.QuarantineRow, error) {
				return st.Quarantined(ctx, stores.QuarantineQuery{
					Service: service, Handler: handler, Reason: stores.Reason(reason), Status: stores.QuarantineStatus(status),
					Before: before, Limit: limit,
				})
			},
			func(q stores.QuarantineRow) int64 {
				l.add(quarantinedOf(q),
					strconv.FormatInt(q.RowID, 10), string(q.Status), q.Consumer.String(), string(q.Reason), cut(showID(q.ID), 50),
					cut(printable(q.Topic), 50), count(q.Seen), p.ago(q.LastAt), cut(printable(q.Detail), shownError))
				return q.RowID
			})
	})
	return cmd
}

func (p *program) quarantineShow() *cobra.Command {
	var v payloadView
	cmd := explained(&cobra.Command{
		Use:   "show ROW",
		Short: "Show all of a message in quarantine: reason, metadata, payload",
		Args:  oneNumber("row"),
	}, nil, exits{exitNothing: "there is no such row"})
	v.bind(cmd)
	cmd.RunE = p.withStore(func(ctx context.Context, st store, args []string) error {
		if err := v.check(p); err != nil {
			return err
		}
		rows, err := numbers(args)
		if err != nil {
			return err
		}
		q, err := answer(ctx, p, func(ctx context.Context) (stores.QuarantineRow, error) { return st.QuarantinedRow(ctx, rows[0]) })
		if err != nil {
			return notFound(err, "there is no such row in quarantine")
		}
		r := quarantinedOf(q)
		r.Payload, r.PayloadTruncated = v.cut(q.Payload)
		r.PayloadNil = !q.OneWay && tombstone(q.Payload, q.Codec, q.Facts)
		return p.showKept(r, v, q.Payload, func(w io.Writer) { p.quarantineText(w, q, v) })
	})
	return cmd
}

func (p *program) quarantineText(w io.Writer, q stores.QuarantineRow, v payloadView) {
	status := string(q.Status)
	if q.Status == stores.QuarantineReleased {
		status += ", runs under the id " + showID(stores.ReleasedID(q.RowID))
	}
	f := newFields(w)
	f.add("row", strconv.FormatInt(q.RowID, 10))
	f.add("consumer", q.Consumer.String())
	f.add("id", showID(q.ID))
	f.add("reason", string(q.Reason))
	f.add("detail", q.Detail)
	f.add("status", status)
	f.add("decided", p.exactly(q.DecidedAt))
	f.add("times seen", count(q.Seen))
	f.add("first", p.exactly(q.FirstAt))
	f.add("last", p.exactly(q.LastAt))
	f.add("topic", q.Topic)
	f.add("coordinates", q.Coordinates)
	p.addFacts(f, q.Facts)
	f.addNil(!q.OneWay && tombstone(q.Payload, q.Codec, q.Facts))
	f.add("uuid", q.UUID)
	f.add("fingerprint", fingerprint(q.Fingerprint))
	f.add("fingerprint of the one with the id", fingerprint(q.Existing))
	f.add("codec", q.Codec)
	if q.OneWay {
		f.add("content", "for reading only, it cannot be released")
	}
	if q.Unreadable != nil {
		f.add("unreadable", q.Unreadable.Error())
	}
	f.close()
	metadataText(w, q.Metadata)
	v.text(w, q.Payload, q.PayloadBytes)
}
