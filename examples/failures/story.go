package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

const (
	inFlight = 4 // deliveries at once
	usedID   = 5 // the number of the order whose id is used again
)

// tell is the whole story: failures, what heals by itself, what an operator repairs,
// and the comparison of charges and orders.
func tell(ctx context.Context, o options, out, messages io.Writer) (err error) {
	binary, remove, err := buildMillpond(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	db, err := prepareDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	broker, err := memory.New(memory.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = broker.Close() }()
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return err
	}
	s := &story{
		out: out, messages: messages, options: o, db: db, broker: broker,
		shop:     &shop{publisher: publisher},
		operator: &operator{binary: binary, store: db.url, out: out},
		payments: &payments{provider: &provider{silent: timeouts()}, instalments: instalmentsAsSent},
	}
	if err := openAccounts(ctx, db, orders()); err != nil {
		return err
	}
	if err := s.failures(ctx); err != nil {
		return err
	}
	if err := s.repair(ctx); err != nil {
		return err
	}
	return s.reckon(ctx)
}

type story struct {
	out, messages io.Writer
	options       options
	db            *database
	broker        *memory.Broker
	shop          *shop
	operator      *operator
	payments      *payments
}

func (s *story) sayf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// failures runs the first version of the service until all that is left is for people,
// who then look at it.
func (s *story) failures(ctx context.Context) error {
	s.sayf("%d orders on %s", orderCount, s.db.where)
	service, err := s.start(ctx)
	if err != nil {
		return err
	}
	err = s.sendAll(ctx, service)
	if err == nil {
		service.seen.show(s.out)
		err = s.lookAround(ctx)
	}
	return errors.Join(err, service.stop())
}

func (s *story) sendAll(ctx context.Context, service *running) error {
	if err := s.shop.send(orders()...); err != nil {
		return err
	}
	if err := s.rest(ctx, service); err != nil {
		return err
	}
	other := order{Account: account(orderCount + 1), Cents: 7777, Card: "card", Instalments: 1}
	if err := s.shop.sendUnderUsedID(orderID(usedID), other); err != nil {
		return err
	}
	return s.await(ctx, service, "the order under a used id is in quarantine", func(n standing) bool {
		return n.quarantined == 1 && service.seen.ended() >= len(s.shop.sent)+1
	})
}

// lookAround is what an operator does first.
func (s *story) lookAround(ctx context.Context) error {
	return s.operator.each(ctx,
		command("stats"),
		command("cause", "ls"),
		command("msg", "show", "--consumer", consumer.String(), "--id", "p:"+orderID(7)),
		command("quarantine", "ls"),
		command("quarantine", "show", "1"),
	)
}

// repair runs the second version of the service, and has done again what it can do.
func (s *story) repair(ctx context.Context) error {
	s.payments.instalments = instalmentsAtLeast1
	service, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.sayf("\nversion 2 of the service is deployed")
	return errors.Join(s.decide(ctx, service), service.stop())
}

func (s *story) decide(ctx context.Context, service *running) error {
	cause, err := s.operator.cause(ctx, "panic")
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := s.operator.each(ctx,
		command("msg", "retry", "--cause", cause, "--dry-run"),
		command("msg", "retry", "--cause", cause, "--reason", "fixed in version 2", "--actor", "anna", "--yes"),
	); err != nil {
		return err
	}
	if err := s.rest(ctx, service); err != nil {
		return err
	}
	fmt.Fprintf(s.messages, "the cause is repaired, %.1f s after its retry was asked for\n", time.Since(begun).Seconds())

	again := order{OrderID: orderID(orderCount + 1), Account: account(orderCount + 1), Cents: 7777, Card: "card", Instalments: 1}
	if err := s.shop.send(again); err != nil { // under an id of its own now
		return err
	}
	if err := s.rest(ctx, service); err != nil {
		return err
	}
	return s.operator.each(ctx,
		command("quarantine", "reject", "1", "--reason", "sent again as "+again.OrderID, "--actor", "anna"),
		command("msg", "discard", "--class", "permanent", "--reason", "the customers were told", "--actor", "anna", "--yes"),
		command("cause", "ls"),
		command("stats"),
		command("audit", "ls", "--limit", "4"),
	)
}

// reckon compares the charges with the orders.
func (s *story) reckon(ctx context.Context) error {
	books, err := readBooks(ctx, s.db)
	if err != nil {
		return err
	}
	r := compare(s.shop.sent, books)
	if err := r.show(s.out); err != nil {
		return err
	}
	if !r.right() {
		return errors.New("the charges are not what the orders say")
	}
	if s.options.store == "" {
		fmt.Fprintf(s.messages, "\nlook around: go run ./cmd/millpond --store %s audit ls\n", s.db.url)
	}
	return nil
}
