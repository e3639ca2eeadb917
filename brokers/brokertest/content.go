package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// roundTrip publishes each message, and expects one that equals it.
func (e *env) roundTrip(messages []*message.Message) error {
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	var errs []error
	for _, sent := range messages {
		if err := e.publish(topic, sent); err != nil {
			errs = append(errs, fmt.Errorf("metadata %.80q, payload %.40q: %w", sent.Metadata, sent.Payload, err))
			continue
		}
		msg, err := s.nextOf(sent)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("metadata %.80q, payload %.40q: %w", sent.Metadata, sent.Payload, err))...)
		}
		if !msg.Equals(sent) {
			errs = append(errs, fmt.Errorf("metadata %.80q became %.80q, payload %.40q became %.40q",
				sent.Metadata, msg.Metadata, sent.Payload, msg.Payload))
		}
		msg.Ack()
	}
	return errors.Join(errs...)
}

func checkPayloads(e *env) error {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	var messages []*message.Message
	for _, payload := range [][]byte{
		nil, {}, {0}, []byte("\xff\xfe not UTF-8"), allBytes, []byte("ünïcödé ☃"), bytes.Repeat([]byte("x"), 64<<10),
	} {
		if !e.CarriesPayload(payload) {
			e.notCheckedf("payload %.40q: the protocol does not carry it", payload)
			continue
		}
		messages = append(messages, message.NewMessage(watermill.NewUUID(), payload))
	}
	return e.roundTrip(messages)
}

func checkMetadata(e *env) error {
	var messages []*message.Message
	for _, pair := range [][2]string{
		{"empty", ""},
		{"", "under an empty key"},
		{"Case", "upper"},
		{"case", "lower"},
		{"with space, colon: and = sign", " spaces around "},
		{"unicode ☃", "ünïcödé ☃"},
		{"lines", "one\r\ntwo\n"},
		{"nul", "a\x00b"},
		{"nul\x00key", "value"},
		{"binary", "\xff\xfe\x80"},
		{"binary\xff", "value"},
		{"long", strings.Repeat("v", 4<<10)},
	} {
		if !e.CarriesMetadata(pair[0], pair[1]) {
			e.notCheckedf("metadata %.40q: the protocol does not carry it", pair)
			continue
		}
		msg := message.NewMessage(watermill.NewUUID(), []byte("x"))
		msg.Metadata.Set(pair[0], pair[1])
		messages = append(messages, msg)
	}
	return e.roundTrip(messages)
}

// checkNoUUID: Watermill says that a UUID may be empty. Two such messages stay two.
func checkNoUUID(e *env) error {
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	if err := e.publish(topic, message.NewMessage("", []byte("1")), message.NewMessage("", []byte("2"))); err != nil {
		return err
	}
	got := make(map[string]bool)
	for range 2 {
		msg, err := s.next()
		if err != nil {
			return err
		}
		got[string(msg.Payload)] = true
		msg.Ack()
	}
	if !got["1"] || !got["2"] {
		return fmt.Errorf("two messages without a UUID became %v", got)
	}
	return nil
}

func checkForeign(e *env) error {
	if e.PublishForeign == nil {
		e.notCheckedf("messages of other producers: the harness has no PublishForeign")
		return nil
	}
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	payload := []byte("from elsewhere")
	e.PublishForeign(e.t, e.broker, topic, payload)
	msg, err := s.next()
	if err != nil {
		return err
	}
	defer msg.Ack()
	d, err := deliveryOf(msg)
	if err != nil {
		return err
	}
	if d.Undecodable != nil {
		return fmt.Errorf("a message without Watermill's headers is marked undecodable: %w", d.Undecodable)
	}
	if !bytes.Equal(msg.Payload, payload) {
		return fmt.Errorf("payload %q became %q", payload, msg.Payload)
	}
	return nil
}

// checkRepeatedHeaders: if a foreign producer repeats a header, every value arrives, byte by byte.
// What the earlier values are called is the adapter's choice.
func checkRepeatedHeaders(e *env) error {
	if e.PublishHeaders == nil {
		e.notCheckedf("repeated headers: the adapter has no wire format, or the harness no PublishHeaders")
		return nil
	}
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	values := []string{"first", "", "\xff\x00\x80", "last"}
	e.PublishHeaders(e.t, e.broker, topic, "again", values)
	for range 2 {
		msg, err := s.next()
		if err != nil {
			return err
		}
		d, err := deliveryOf(msg)
		if err != nil {
			return err
		}
		if d.Undecodable != nil {
			return fmt.Errorf("a message with a repeated header is marked undecodable: %w", d.Undecodable)
		}
		if !slices.Contains(values, msg.Metadata.Get("again")) {
			return fmt.Errorf("no value has the name of the header: metadata %q", msg.Metadata)
		}
		got := slices.Collect(maps.Values(msg.Metadata))
		for _, value := range values {
			if !slices.Contains(got, value) {
				return fmt.Errorf("value %q of a repeated header is lost: metadata %q", value, msg.Metadata)
			}
		}
		if !msg.Nack() {
			return errors.New("the message cannot be nacked")
		}
	}
	msg, err := s.next()
	if err != nil {
		return err
	}
	msg.Ack()
	return nil
}

// checkUndecodable: a message that cannot be read reaches the handler, can be acked there, and
// blocks nothing.
func checkUndecodable(e *env) error {
	if e.PublishUndecodable == nil {
		e.notCheckedf("undecodable messages: the adapter has no wire format, or the harness no PublishUndecodable")
		return nil
	}
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	e.PublishUndecodable(e.t, e.broker, topic)
	msg, err := s.next()
	if err != nil {
		return fmt.Errorf("the undecodable message: %w", err)
	}
	d, err := deliveryOf(msg)
	if err != nil {
		return err
	}
	if d.Undecodable == nil {
		return errors.New("Delivery.Undecodable is nil")
	}
	msg.Ack()
	good := newMessages(1)[0]
	if err := e.publish(topic, good); err != nil {
		return err
	}
	if msg, err = s.nextOf(good); err != nil {
		return fmt.Errorf("behind an undecodable message that was acked: %w", err)
	}
	msg.Ack()
	return nil
}
