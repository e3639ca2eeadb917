package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func consumerKey(n int64) item { return key(kindConsumer, nil, number8(n)) }

func consumerOf(i item) stores.Consumer {
	return stores.Consumer{Service: text(i["svc"]), Handler: text(i["hdl"])}
}

func topicsOf(i item) []string {
	set, _ := i["tpc"].(*types.AttributeValueMemberSS)
	if set == nil {
		return nil
	}
	return slices.Sorted(slices.Values(set.Value))
}

// Register implements stores.Registry. It writes only if something changed.
func (s *Store) Register(ctx context.Context, r stores.Registration) error {
	if s.known.Closed() {
		return stores.ErrClosed
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("dynamodb: %w", err)
	}
	if err := s.Validate(ctx); err != nil {
		return err
	}
	n := sqlstore.ConsumerNumber(r.Consumer)
	for {
		is, err := s.get(ctx, consumerKey(n))
		if err != nil {
			return err
		}
		done, err := s.acceptable(is, r)
		if err == nil && !done {
			err = s.register(ctx, n, r)
		}
		switch {
		case errors.Is(err, stores.ErrChanged): // by another process
			continue
		case err != nil:
			return err
		}
		s.known.Add(r.Consumer, n)
		return nil
	}
}

// acceptable reports whether the consumer's item already has everything in the registration.
func (s *Store) acceptable(is item, r stores.Registration) (done bool, err error) {
	if len(is) == 0 {
		return false, nil
	}
	if has := consumerOf(is); has != r.Consumer {
		return false, fmt.Errorf("dynamodb: %w: %s and %s: give the handler another name", stores.ErrConsumerCollision, has, r.Consumer)
	}
	known, err := sqlstore.KnowsTopic(&r, topicsOf(is))
	if err != nil {
		return false, fmt.Errorf("dynamodb: %w", err)
	}
	kept := integer(is["ret"])
	return known && (s.retention == 0 || kept != 0 && kept <= s.retention), nil
}

// register adds a topic, and the retention if it is the consumer's shortest.
func (s *Store) register(ctx context.Context, n int64, r stores.Registration) error {
	set, add := "SET svc = :svc, hdl = :hdl, #reg = if_not_exists(#reg, :now)", ""
	values := item{":svc": str(r.Consumer.Service), ":hdl": str(r.Consumer.Handler), ":now": num(s.clock.now())}
	condition := "(attribute_not_exists(pk) OR svc = :svc AND hdl = :hdl)"
	if r.Topic != "" {
		add, values[":topics"] = " ADD tpc :topics", &types.AttributeValueMemberSS{Value: []string{r.Topic}}
		if !r.AcceptTopic {
			values[":topic"] = str(r.Topic)
			condition += " AND (attribute_not_exists(tpc) OR contains(tpc, :topic))"
		}
	}
	if s.retention > 0 {
		set += ", #ret = :ret"
		values[":ret"] = num(s.retention)
		condition += " AND (attribute_not_exists(#ret) OR #ret >= :ret)"
	}
	_, err := s.update(ctx, s.table, consumerKey(n), set+add, condition, values)
	return s.refused(ctx, err, func(item) bool { return false })
}

// allConsumers returns the consumers that match, sorted; empty names match all.
func (s *Store) allConsumers(ctx context.Context, service, handler string) ([]stores.Consumer, error) {
	var all []stores.Consumer
	err := s.query(ctx, partitionQuery(kindConsumer, nil), func(i item) bool {
		if c := consumerOf(i); (service == "" || c.Service == service) && (handler == "" || c.Handler == handler) {
			all = append(all, c)
		}
		return true
	})
	slices.SortFunc(all, func(a, b stores.Consumer) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Handler, b.Handler))
	})
	return all, err
}

// Consumers implements stores.Inspector.
func (s *Store) Consumers(ctx context.Context) ([]stores.Consumer, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.allConsumers(ctx, "", "")
}

// Attend implements stores.Attendance.
func (s *Store) Attend(ctx context.Context, c stores.Consumer, process string) ([]stores.Attendant, error) {
	n, err := s.known.Consumer(c)
	if err != nil {
		return nil, err
	}
	now := s.clock.now()
	mine := key(kindProcess, number8(n), []byte(process))
	mine["at"] = num(now)
	if _, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: mine}); err != nil {
		return nil, s.explain(ctx, err)
	}
	var others []stores.Attendant
	err = s.query(ctx, partitionQuery(kindProcess, number8(n)), func(i item) bool {
		if name := string(blob(i["sk"])); name != process {
			others = append(others, stores.Attendant{Process: name, Unseen: micros(max(0, now-integer(i["at"])))})
		}
		return true
	})
	return others, err
}

// Leave implements stores.Attendance.
func (s *Store) Leave(ctx context.Context, c stores.Consumer, process string, unseen time.Duration) error {
	n, err := s.known.Consumer(c)
	if err != nil {
		return err
	}
	now := s.clock.now()
	_, err = s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &s.table, Key: key(kindProcess, number8(n), []byte(process)), ConditionExpression: aws.String("#at <= :at"),
		ExpressionAttributeNames: map[string]string{"#at": "at"}, ExpressionAttributeValues: item{":at": num(now - unseen.Microseconds())},
	})
	return s.refused(ctx, err, func(item) bool { return true })
}
