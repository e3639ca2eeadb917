package wire

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	sqs "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/brokers"
)

// throughSQS encodes a message, checks what SQS checks, and decodes it.
func throughSQS(t interface{ Fatalf(string, ...any) }, msg *message.Message) *message.Message {
	body, attributes, err := Encode(msg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if body == "" || !isText(body) {
		t.Fatalf("SQS refuses the body %q", body)
	}
	if len(attributes) > MaxAttributes {
		t.Fatalf("%d attributes", len(attributes))
	}
	for name, a := range attributes {
		if !validName(name) || a.Text == "" || !isText(a.Text) {
			t.Fatalf("SQS refuses the attribute %q: %+v", name, a)
		}
	}
	again, err := FromSQS(&sqs.Message{Body: &body, MessageAttributes: ToSQS(attributes)})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return again
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
		text := rapid.OneOf(odd, rapid.String(), rapid.SampledFrom([]string{"", "a", "AWS.x", "amazon.y", ".a", "a.", "a..b", "\uffff", "a-b_c.d"}))
		payload := rapid.OneOf(text, rapid.Just(`{"Type":"Notification","MessageId":"1","TopicArn":"arn:a","Message":"inner"}`)).Draw(t, "payload")
		msg := message.NewMessage(text.Draw(t, "uuid"), []byte(payload))
		msg.Metadata = rapid.MapOf(text, text).Draw(t, "metadata")
		again := throughSQS(t, msg)
		if again.UUID != msg.UUID || !bytes.Equal(again.Payload, msg.Payload) || !maps.Equal(again.Metadata, msg.Metadata) {
			t.Fatalf("%q %q %q became %q %q %q", msg.UUID, msg.Metadata, msg.Payload, again.UUID, again.Metadata, again.Payload)
		}
	})
}

func TestPlainMessagesAreInWatermillsFormat(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("id", []byte("payload"))
	for i := range MaxAttributes - 1 {
		msg.Metadata.Set(fmt.Sprint("field", i), "value")
	}
	body, attributes, err := Encode(msg)
	if err != nil {
		t.Fatal(err)
	}
	if body != "payload" || len(attributes) != MaxAttributes || attributes[UUIDAttribute].Text != "id" {
		t.Errorf("%q %+v", body, attributes)
	}
	for name := range msg.Metadata {
		if a := attributes[name]; a.Type != typeString || a.Text != "value" {
			t.Errorf("%q is %+v", name, a)
		}
	}
}

func TestTheEleventhAttributeIsPacked(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("id", []byte("payload"))
	for i := range 30 {
		msg.Metadata.Set(fmt.Sprintf("field%02d", i), fmt.Sprint(i))
	}
	_, attributes, err := Encode(msg)
	if err != nil {
		t.Fatal(err)
	}
	if len(attributes) != MaxAttributes || attributes["field07"].Text != "7" || attributes[UUIDAttribute].Text != "id" {
		t.Errorf("%+v", attributes)
	}
	if _, plain := attributes["field08"]; plain || !strings.Contains(attributes[PackedAttribute].Text, `"field29":"29"`) {
		t.Errorf("%+v", attributes)
	}
	if again := throughSQS(t, msg); !again.Equals(msg) {
		t.Errorf("%q", again.Metadata)
	}
}

func TestFieldsLeftOut(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("id", []byte("payload"))
	msg.Metadata = message.Metadata{"a": "1", "b": "2"}
	_, attributes, err := Encode(msg, "b", "c")
	if _, has := attributes["b"]; err != nil || has || attributes["a"].Text != "1" {
		t.Errorf("%+v, %v", attributes, err)
	}
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{UUIDAttribute, PackedAttribute} {
		msg := message.NewMessage("id", nil)
		msg.Metadata.Set(name, "forged")
		if _, _, err := Encode(msg); !errors.Is(err, ErrReserved) || !errors.Is(err, brokers.ErrUnencodable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestForeignAttributes: whatever type an attribute has, also that of the UUID, it is read.
func TestForeignAttributes(t *testing.T) {
	t.Parallel()
	msg, err := FromSQS(&sqs.Message{
		Body: aws.String("body"),
		MessageAttributes: map[string]sqs.MessageAttributeValue{
			UUIDAttribute: {DataType: aws.String("Binary"), BinaryValue: []byte("id\xff")},
			"number":      {DataType: aws.String("Number.int"), StringValue: aws.String("7")},
			"labelled":    {DataType: aws.String("Binary.png"), BinaryValue: []byte("\x89PNG")},
			"unheard":     {DataType: aws.String("List"), StringValue: aws.String("a,b")},
			"untyped":     {StringValue: aws.String("x")},
			"nothing":     {},
			"empty":       {DataType: aws.String("String"), StringValue: aws.String("")},
		},
	})
	want := message.Metadata{"number": "7", "labelled": "\x89PNG", "unheard": "a,b", "untyped": "x", "nothing": "", "empty": ""}
	if err != nil || msg.UUID != "id\xff" || !maps.Equal(msg.Metadata, want) || string(msg.Payload) != "body" {
		t.Errorf("%q %q, %v", msg.UUID, msg.Metadata, err)
	}
	if msg, err := FromSQS(&sqs.Message{}); err != nil || msg.UUID != "" || len(msg.Payload) != 0 {
		t.Errorf("%+v, %v", msg, err)
	}
}

func TestEnvelopesOfSNS(t *testing.T) {
	t.Parallel()
	wrapped := `{
		"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:eu-central-1:1:orders",
		"Message": "{\"a\":1}", "Timestamp": "2026-01-01T00:00:00.000Z", "SignatureVersion": "1",
		"MessageAttributes": {
			"_watermill_message_uuid": {"Type": "String", "Value": "id"},
			"bytes": {"Type": "Binary", "Value": "/w=="},
			"broken": {"Type": "Binary", "Value": "*"}
		}
	}`
	msg, err := Decode(wrapped, nil)
	if err != nil || msg.UUID != "id" || string(msg.Payload) != `{"a":1}` || msg.Metadata.Get("bytes") != "\xff" || msg.Metadata.Get("broken") != "*" {
		t.Errorf("%+v, %v", msg, err)
	}
	for body, attributes := range map[string]map[string]Attribute{
		wrapped: {UUIDAttribute: {Type: typeString, Text: "id"}}, // somebody has published an envelope
		`{"Type":"Notification","Message":"no topic"}`: nil,
		`{"Type":"Notification"`:                       nil,
		`Notification`:                                 nil,
	} {
		if msg, err := Decode(body, attributes); err != nil || string(msg.Payload) != body {
			t.Errorf("%q became %q, %v", body, msg.Payload, err)
		}
	}
}

func TestWhatCannotBeUnpackedIsMarked(t *testing.T) {
	t.Parallel()
	for text, body := range map[string]string{
		"{":                     "body",
		`{"body":"rot13"}`:      "body",
		`{"body":"base64"}`:     "not base64",
		`{"encoded":{"*":"b"}}`: "body",
		`{"uuid":"*"}`:          "body",
		// What could not be published again is not what a millpond has packed.
		`{"fields":{"` + UUIDAttribute + `":"a"}}`:                                                "body",
		`{"fields":{"` + PackedAttribute + `":"{}"}}`:                                             "body",
		`{"encoded":{"` + base64.StdEncoding.EncodeToString([]byte(UUIDAttribute)) + `":"YQ=="}}`: "body",
	} {
		msg, err := Decode(body, map[string]Attribute{PackedAttribute: {Type: typeString, Text: text}, "other": {Type: typeString, Text: "x"}})
		if err == nil || string(msg.Payload) != body || msg.Metadata.Get("other") != "x" || msg.Metadata.Get(PackedAttribute) != text {
			t.Errorf("%s: %q %q, %v", text, msg.Payload, msg.Metadata, err)
		}
	}
}
