package crash

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/stores"
)

// itemTables is the observer of DynamoDB. It reads the store's items without the store.
type itemTables struct {
	client *awsdynamodb.Client
	prefix string
}

// What the first byte of the key says that an item is.
const (
	itemMessage    = 'm'
	itemQuarantine = 'q'
	itemConsumer   = 'c'
	itemAudit      = 'a'
	itemContent    = 'b' // in the table of contents, as outputs
	itemOutput     = 'o'
)

func textOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func bytesOf(v types.AttributeValue) []byte {
	if b, ok := v.(*types.AttributeValueMemberB); ok {
		return b.Value
	}
	return nil
}

func numberOf(v types.AttributeValue) int64 {
	if n, ok := v.(*types.AttributeValueMemberN); ok {
		i, _ := strconv.ParseInt(n.Value, 10, 64)
		return i
	}
	return 0
}

func truth(v types.AttributeValue) bool {
	b, ok := v.(*types.AttributeValueMemberBOOL)
	return ok && b.Value
}

// scan reads a table of this prefix.
func (s *itemTables) scan(ctx context.Context, table string, yield func(attributes)) error {
	name := s.prefix + table
	in := &awsdynamodb.ScanInput{TableName: &name, ConsistentRead: aws.Bool(true)}
	for {
		out, err := s.client.Scan(ctx, in)
		if err != nil {
			return err
		}
		for _, item := range out.Items {
			yield(item)
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return nil
		}
	}
}

// sorted are the items of the store, by what they are.
type sorted map[byte][]attributes

func (s *itemTables) sorted(ctx context.Context) (sorted, error) {
	all := make(sorted)
	sort := func(i attributes) {
		kind := bytesOf(i["pk"])[0]
		all[kind] = append(all[kind], i)
	}
	return all, errors.Join(s.scan(ctx, "inbox", sort), s.scan(ctx, "content", sort))
}

// handlers returns the consumers' names by the number in keys.
func (all sorted) handlers() map[uint64]string {
	handlers := make(map[uint64]string)
	for _, i := range all[itemConsumer] {
		handlers[binary.BigEndian.Uint64(bytesOf(i["sk"]))] = textOf(i["hdl"])
	}
	return handlers
}

// messages yields the items that stand for a message; the others only close one, or are steps.
func (all sorted) messages(yield func(consumer uint64, id []byte, i attributes)) {
	for _, i := range all[itemMessage] {
		pk := bytesOf(i["pk"])
		if sk := bytesOf(i["sk"]); len(sk) == 1 && sk[0] == 0 && numberOf(i["st"]) != 0 {
			yield(binary.BigEndian.Uint64(pk[1:9]), pk[9:], i)
		}
	}
}

// payloads returns what is kept, by the name in its key.
func (all sorted) payloads() map[string]string {
	packed := make(map[string][]byte)
	for _, i := range all[itemContent] { // a scan has the parts in order
		name := string(bytesOf(i["pk"])[1:])
		packed[name] = append(packed[name], bytesOf(i["b"])...)
	}
	payloads := make(map[string]string)
	for name, content := range packed {
		payloads[name] = payloadOf(content)
	}
	return payloads
}

// payloadOf is what follows the metadata and the facts, which have their lengths before them.
func payloadOf(packed []byte) string {
	rest := packed[1:]
	for range 2 {
		n, size := binary.Uvarint(rest)
		rest = rest[size+int(n):]
	}
	return string(rest)
}

// state implements observer.
func (s *itemTables) state(ctx context.Context) (*state, error) {
	st := newState()
	all, err := s.sorted(ctx)
	if err != nil {
		return nil, err
	}
	handlers, payloads := all.handlers(), all.payloads()
	ids := make(map[string]string) // of messages that were released, by that under which they run
	for _, i := range all[itemQuarantine] {
		q := quarantined{
			row: numberOf(i["num"]), id: formatID(bytesOf(i["mid"])), reason: stores.Reason(textOf(i["rsn"])),
			seen: int(numberOf(i["seen"])), status: stores.QuarantineStatus(textOf(i["qst"])),
		}
		if q.status == stores.QuarantineReleased {
			ids[formatID(stores.ReleasedID(q.row))] = q.id
		}
		of := subject{handlers[binary.BigEndian.Uint64(bytesOf(i["pk"])[1:9])], payloads[string(bytesOf(i["cid"]))]}
		st.quarantine[of] = append(st.quarantine[of], q)
	}
	all.messages(func(consumer uint64, id []byte, i attributes) {
		k := key{handlers[consumer], formatID(id)}
		if own, released := ids[k.id]; released {
			k.id = own
		}
		status := stores.Status(numberOf(i["st"]))
		st.inbox[k] = inboxRow{status: status, fingerprint: bytesOf(i["fp"])}
		if numberOf(i["num"]) != 0 {
			st.failures[k] = failureOf(i, payloads)
		}
	})
	for _, i := range all[itemAudit] {
		st.audits[audited{stores.Verb(textOf(i["vrb"])), numberOf(i["of"])}]++
	}
	for _, i := range all[itemOutput] {
		consumer, id, _ := strings.Cut(payloadOf(bytesOf(i["b"])), " ")
		st.outputs[key{consumer, id}]++
	}
	return st, s.shop(ctx, st)
}

func failureOf(i attributes, payloads map[string]string) failure {
	f := failure{
		number: numberOf(i["num"]), attempts: int(numberOf(i["att"])), uncounted: int(numberOf(i["unc"])), redrives: int(numberOf(i["red"])),
		presumed: truth(i["prs"]), class: stores.Class(textOf(i["cls"])), text: textOf(i["err"]), payload: payloads[string(bytesOf(i["cid"]))],
	}
	f.status, f.content = stores.Status(numberOf(i["st"])), stores.ContentState(numberOf(i["cst"]))
	if due := numberOf(i["due"]); due != 0 {
		f.dueIn = time.UnixMicro(due).Sub(time.Now().Add(serviceAhead))
	}
	return f
}

// shop reads the service's table.
func (s *itemTables) shop(ctx context.Context, st *state) error {
	return s.scan(ctx, "shop", func(i attributes) {
		k := textOf(i["k"])
		if _, of, ok := strings.Cut(k, stockItem); ok {
			consumer, _, _ := strings.Cut(of, "/")
			st.sold[consumer] += int(numberOf(i["sold"]))
		}
		if strings.HasPrefix(k, effectItem) {
			part, _ := strconv.Atoi(textOf(i["part"]))
			of := key{textOf(i["consumer"]), textOf(i["id"])}
			st.effects[of] = append(st.effects[of], effect{part: part, run: textOf(i["run"]), payload: textOf(i["payload"])})
		}
	})
}

// settled implements observer.
func (s *itemTables) settled(ctx context.Context, e *entry) (settled bool, err error) {
	all, err := s.sorted(ctx)
	if err != nil {
		return false, err
	}
	handlers, payloads := all.handlers(), all.payloads()
	all.messages(func(consumer uint64, id []byte, i attributes) {
		mine := handlers[consumer] == e.consumer && formatID(id) == e.ID
		settled = settled || mine && (numberOf(i["st"]) != int64(stores.StatusPending) || numberOf(i["plc"]) == int64(stores.PlacementParked))
	})
	for _, i := range all[itemQuarantine] {
		consumer := handlers[binary.BigEndian.Uint64(bytesOf(i["pk"])[1:9])]
		settled = settled || consumer == e.consumer && payloads[string(bytesOf(i["cid"]))] == e.Payload
	}
	return settled, nil
}

// open implements observer. A scan is no snapshot: what is released while it is read may be in
// neither place, so the second one counts.
func (s *itemTables) open(ctx context.Context, operated bool) (n int, err error) {
	for range 2 {
		all, err := s.sorted(ctx)
		if err != nil {
			return 0, fmt.Errorf("scan: %w", err)
		}
		n = 0
		all.messages(func(_ uint64, _ []byte, i attributes) {
			status, class := stores.Status(numberOf(i["st"])), stores.Class(textOf(i["cls"]))
			pending := status == stores.StatusPending && numberOf(i["cst"]) != 0
			decided := operated && status == stores.StatusFailed && (class == stores.ClassPermanent || class == stores.ClassOutputs)
			if pending || decided {
				n++
			}
		})
		for _, i := range all[itemQuarantine] {
			reason := stores.Reason(textOf(i["rsn"]))
			if operated && textOf(i["qst"]) == string(stores.QuarantineHeld) && (reason == stores.ReasonKeyTooLong || reason == stores.ReasonNoKey) {
				n++
			}
		}
		if n > 0 {
			break
		}
	}
	return n, nil
}
