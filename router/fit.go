package router

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/stores"
)

// fit checks that handlers, broker and store fit together, and says with numbers what does
// not.
func (s *Service) fit() error {
	errs := append([]error(nil), s.mistakes...)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("router: "+format, args...)) }
	if len(s.handlers) == 0 && len(s.watermill.Handlers()) == 0 {
		bad("there are no handlers: call Service.Handle before Run")
	}
	names := make(map[string]bool)
	for _, h := range s.handlers {
		names[h.name] = true
		if _, taken := s.watermill.Handlers()[h.name]; taken {
			bad("handler %q: Watermill's router has one of this name already: rename one of them", h.name)
		}
		if h.handle != nil {
			if fix := wrongStore(h.handle, s.store); fix != "" {
				bad("handler %q: %s", h.name, fix)
			}
		}
		s.fitDeliveries(h, bad)
	}
	s.fitNames(names, bad)
	s.fitPool(bad)
	return errors.Join(errs...)
}

// fitNames checks what the configuration says about handlers by name.
func (s *Service) fitNames(names map[string]bool, bad func(format string, args ...any)) {
	var there []string
	for _, h := range s.handlers {
		there = append(there, h.name)
	}
	mustBe := func(name, setting, what string) {
		switch best, ok := field.Nearest(name, there); {
		case names[name]:
		case ok:
			bad("%s: the program has no such handler: did you mean %s?", setting, best)
		default:
			bad("%s: the program has no such handler, it has %s: remove %s", setting, strings.Join(there, ", "), what)
		}
	}
	for name, one := range s.config.Handlers {
		mustBe(name, "handlers."+name, "the section")
		if names[one.RenamedFrom] {
			bad("handlers.%s.renamed_from is %q, which is a handler of this program: two handlers would share one consumer, and one would lose its messages", name, one.RenamedFrom)
		}
	}
	for name := range s.config.Inbox.Renamed {
		mustBe(name, fmt.Sprintf("Inbox.Renamed[%q]", name), "it")
	}
	for name := range s.config.Inbox.RetryByHandler {
		mustBe(name, fmt.Sprintf("Inbox.RetryByHandler[%q]", name), "it")
	}
	readers := make(map[[2]string]string)
	for _, h := range s.handlers {
		key := [2]string{s.config.groupOf(h.name), h.topic}
		if other, taken := readers[key]; taken && other != h.name {
			bad("handlers %q and %q read topic %q in one group, %q, so that each would miss the other's messages: give them different groups", other, h.name, h.topic, key[0])
		}
		readers[key] = h.name
	}
}

// fitDeliveries compares what a handler may need of a delivery with what the broker grants.
func (s *Service) fitDeliveries(h *handler, bad func(format string, args ...any)) {
	in, can := &s.inboxed, s.broker.Capabilities()
	need := in.ClaimTimeout + in.HandlerTimeout + in.CommitTimeout
	if grants := can.SettleLimit; grants > 0 {
		if need > grants {
			bad("handler %q may take %s (inbox.claim_timeout %s + handler_timeout %s + commit_timeout %s), and the broker takes a message back after %s: lower them, or raise the broker's limit",
				h.name, need, in.ClaimTimeout, in.HandlerTimeout, in.CommitTimeout, grants)
		} else if in.Hold.Limit+need > grants {
			bad("handler %q: inbox.hold.limit is %s, which with the %s of one attempt is more than the %s after which the broker takes a message back: lower it to %s",
				h.name, in.Hold.Limit, need, grants, grants-need)
		}
	}

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
	limit := can.DeliveryLimit
	most, source := limit.Max, "the broker's limit"
	if !limit.Known && s.config.Broker.DeliveryLimit > 0 {
		most, source = s.config.Broker.DeliveryLimit, "broker.delivery_limit"
	}
	switch {
	case !limit.Known && s.config.Broker.DeliveryLimit == 0:
		bad("handler %q: with %s each attempt is a delivery, and the broker (%s) cannot tell after how many it drops a message: say it in broker.delivery_limit, or let messages be parked", h.name, why, can.System)
	case most > 0 && retry.MaxAttempts >= most:
		bad("handler %q: with %s its %d attempts are as many deliveries, and %s is %d, after which a message is lost to the service: lower retry.max_attempts to %d, raise the limit, or let messages be parked",
			h.name, why, retry.MaxAttempts, source, most, max(1, most-1))
	}
}

// drainsByDefault reports whether nobody has chosen how long handlers may take and how
// long the service drains, so that there is nothing to say about it.
func (s *Service) drainsByDefault() bool {
	var initial Config
	initial.setDefaults()
	c := &s.config
	return c.DrainTimeout == initial.DrainTimeout && c.Inbox.HandlerTimeout == initial.Inbox.HandlerTimeout && c.Inbox.CommitTimeout == initial.Inbox.CommitTimeout
}

// advise logs what works, but not as somebody might think.
func (s *Service) advise() {
	c := &s.config
	s.adviseOfKeys()
	if need := c.Inbox.HandlerTimeout + c.Inbox.CommitTimeout; c.DrainTimeout < need && !s.drainsByDefault() {
		s.log.Info("millpond: a handler may take longer than the service drains; it is then rolled back, and its message comes again",
			slog.Duration("drain_timeout", c.DrainTimeout), slog.Duration("handler_and_commit", need))
	}
	if !s.store.Capabilities().ServerBound {
		s.log.Debug("millpond: the store cannot end the transaction of a process that stands still; its messages wait until it goes on or dies")
	}
	if s.store.Capabilities().CommitUnproven {
		s.log.Info("millpond: a handler that ends its transaction in SQL and begins another one is not noticed on this connection; docs/stores.md has the ways in that notice it")
	}
	if s.store.Capabilities().SessionShared {
		s.log.Info("millpond: what a handler sets in its session may stay for other messages on this connection; set it for the transaction alone (SET LOCAL); docs/handlers.md says more")
	}
	if c.RetryWorker.Off {
		s.log.Info("millpond: this process runs no parked messages again (retry_worker.off); another one has to")
	}
}
