package router

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/stores"
)

// fitting checks that handlers, broker and store fit together. Its errors give the numbers.
type fitting struct {
	*run

	errs []error
}

func (r *run) fit() error {
	f := &fitting{run: r, errs: slices.Clone(r.mistakes)}
	if !f.config.Relay.On && len(f.handlers) == 0 && len(f.watermill.Handlers()) == 0 {
		f.badf("there are no handlers: call Service.Handle before Run")
	}
	for _, h := range f.handlers {
		if _, taken := f.watermill.Handlers()[h.name]; taken {
			f.badf("handler %q: Watermill's router has a handler of this name already: rename one of them", h.name)
		}
		f.destination(h)
		if h.typed != nil {
			if fix := wrongStore(h.typed, f.store); fix != "" {
				f.badf("handler %q: %s", h.name, fix)
			}
		}
		f.settleLimit(h)
		f.deliveryLimit(h)
		f.retention(h)
	}
	f.names()
	f.groups()
	f.pool()
	return errors.Join(f.errs...)
}

func (f *fitting) badf(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("router: "+format, args...))
}

// names checks the names of handlers in the configuration.
func (f *fitting) names() {
	var there []string
	for _, h := range f.handlers {
		there = append(there, h.name)
	}
	mustBe := func(name, setting, what string) {
		switch best, ok := field.Nearest(name, there); {
		case slices.Contains(there, name):
		case ok:
			f.badf("%s: the program has no such handler: did you mean %s?", setting, best)
		default:
			f.badf("%s: the program has no such handler, it has %s: remove %s", setting, strings.Join(there, ", "), what)
		}
	}
	for name, one := range f.config.Handlers {
		mustBe(name, "handlers."+name, "the section")
		if slices.Contains(there, one.RenamedFrom) {
			f.badf("handlers.%s.renamed_from is %q, which is a handler of this program: two handlers would share one consumer, and one would lose its messages", name, one.RenamedFrom)
		}
	}
	for name := range f.config.Inbox.Renamed {
		mustBe(name, fmt.Sprintf("Inbox.Renamed[%q]", name), "it")
	}
	for name := range f.config.Inbox.RetryByHandler {
		mustBe(name, fmt.Sprintf("Inbox.RetryByHandler[%q]", name), "it")
	}
	for name := range f.config.Inbox.LeaseByHandler {
		mustBe(name, fmt.Sprintf("Inbox.LeaseByHandler[%q]", name), "it")
	}
	for name := range f.config.Inbox.BatchByHandler {
		mustBe(name, fmt.Sprintf("Inbox.BatchByHandler[%q]", name), "it")
	}
}

// groups checks that no two handlers share the messages of a topic.
func (f *fitting) groups() {
	readers := make(map[[2]string]string)
	for _, h := range f.handlers {
		key := [2]string{f.config.groupOf(h.name), h.topic}
		if other, taken := readers[key]; taken && other != h.name {
			f.badf("handlers %q and %q read topic %q in one group, %q, so that each would miss the other's messages: give them different groups", other, h.name, h.topic, key[0])
		}
		readers[key] = h.name
	}
}

// settleLimit checks that the broker waits for an ack for as long as a handler may take.
func (f *fitting) settleLimit(h *handler) {
	in, limit := &f.inboxed, f.broker.Capabilities().SettleLimit
	need := in.ClaimTimeout + in.HandlerTimeout + in.CommitTimeout
	parts := fmt.Sprintf("inbox.claim_timeout %s + handler_timeout %s + commit_timeout %s", in.ClaimTimeout, in.HandlerTimeout, in.CommitTimeout)
	if lease, ok := in.LeaseByHandler[h.name]; ok { // a redelivery waits for the lease of a dead process
		need += lease.TTL
		parts += fmt.Sprintf(" + handlers.%s.lease.ttl %s", h.name, lease.TTL)
	}
	if batch, ok := in.BatchByHandler[h.name]; ok { // the message waits for a batch; after a lost batch it runs alone
		inFlight := f.config.inFlightOf(h.name)
		need += need + in.CommitTimeout + time.Duration(inFlight+1)*batch.Time
		parts = fmt.Sprintf("twice %s + commit_timeout %s + handlers.%s.batch.time %s × (in_flight %d + 1)",
			parts, in.CommitTimeout, h.name, batch.Time, inFlight)
	}
	switch {
	case limit <= 0:
	case need > limit:
		f.badf("handler %q may take %s (%s), and the broker takes a message back after %s: lower them, or raise the broker's limit",
			h.name, need, parts, limit)
	case in.Hold.Limit+need > limit:
		f.badf("handler %q: inbox.hold.limit is %s, which with the %s of one attempt is more than the %s after which the broker takes a message back: lower it to %s",
			h.name, in.Hold.Limit, need, limit, limit-need)
	}
}

// deliveryLimit checks that the broker does not drop a message before its retry budget is spent,
// if each attempt is a delivery.
func (f *fitting) deliveryLimit(h *handler) {
	in, can := &f.inboxed, f.broker.Capabilities()
	retry, own := in.RetryByHandler[h.name]
	if !own {
		retry = in.Retry
	}
	var why string
	switch {
	case retry.Placement == stores.PlacementRedelivered:
		why = "placement redelivered"
	case in.Keep.Off:
		why = "keep.off"
	case in.Keep.Codec != nil && in.Keep.Codec.Decode == nil:
		why = "a codec that cannot decode"
	default:
		return
	}
	most, source := can.DeliveryLimit.Max, "the broker's limit"
	if !can.DeliveryLimit.Known {
		most, source = f.config.Broker.DeliveryLimit, "broker.delivery_limit"
	}
	switch {
	case !can.DeliveryLimit.Known && most == 0:
		f.badf("handler %q: with %s each attempt is a delivery, and the broker (%s) does not tell after how many deliveries it drops a message: set broker.delivery_limit, or let messages be parked", h.name, why, can.System)
	case most > 0 && retry.MaxAttempts >= most:
		f.badf("handler %q: with %s its %d attempts are as many deliveries, and %s is %d, after which a message is lost to the service: lower retry.max_attempts to %d, raise the limit, or let messages be parked",
			h.name, why, retry.MaxAttempts, source, most, max(1, most-1))
	}
}

// advise logs settings with surprising effects.
func (r *run) advise() {
	c := &r.config
	r.adviseOfKeys()
	r.adviseOfRetention()
	if need := c.Inbox.HandlerTimeout + c.Inbox.CommitTimeout; c.DrainTimeout < need && !c.drainsByDefault() {
		r.log.Info("millpond: a handler may take longer than the service drains; it is then rolled back, and its message is redelivered",
			slog.Duration("drain_timeout", c.DrainTimeout), slog.Duration("handler_and_commit", need))
	}
	can := r.store.Capabilities()
	if !can.ServerBound {
		r.log.Debug("millpond: the store cannot end the transaction of a paused process; its messages wait until the process goes on or dies")
	}
	if can.CommitUnproven {
		r.log.Info("millpond: a handler that ends its transaction in SQL and begins another one is not noticed on this connection; docs/stores.md lists the connections that notice it")
	}
	if can.SessionShared {
		r.log.Info("millpond: a handler's session settings may affect other messages on this connection; set them for the transaction alone (SET LOCAL); see docs/handlers.md")
	}
	if publishes := func(h *handler) bool { return h.publishes != nil }; !c.Relay.On && slices.ContainsFunc(r.handlers, publishes) {
		r.log.Info("millpond: this process runs no relay (relay.on): another must publish what its handlers return")
	}
	if c.RetryWorker.Off {
		r.log.Info("millpond: this process does not run parked messages (retry_worker.off); another process must")
	}
}

// drainsByDefault reports whether the timeouts of handlers and of the drain are the defaults.
func (c *Config) drainsByDefault() bool {
	var initial Config
	initial.setDefaults()
	return c.DrainTimeout == initial.DrainTimeout && c.Inbox.HandlerTimeout == initial.Inbox.HandlerTimeout && c.Inbox.CommitTimeout == initial.Inbox.CommitTimeout
}
