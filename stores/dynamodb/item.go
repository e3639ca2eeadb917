package dynamodb

import (
	"encoding/binary"
	"reflect"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// item is an item of a table. Its keys are binary, and pk begins with the kind.
type item = map[string]types.AttributeValue

const (
	kindMessage    = 'm' // pk has consumer and id
	kindContent    = 'b' // in the other table: pk has a name, sk the part
	kindQuarantine = 'q' // pk has the consumer, sk what the same message repeats
	kindConsumer   = 'c' // sk has the consumer
	kindAudit      = 'a' // sk has the number
	kindProcess    = 'p' // pk has the consumer, sk the process
	kindSchema     = 's'
	kindCounter    = 'n' // pk has the counter's name
	kindLease      = 'l' // sk has the name

	// Kinds of outputs, in the content table: pk has the partition, sk number and time.
	kindOutput    = 'o'
	kindFailed    = 'f'
	kindPublished = 'h'
)

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func bin(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func num(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// yes is true; false is left out.
var yes types.AttributeValue = &types.AttributeValueMemberBOOL{Value: true}

func text(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

func blob(v types.AttributeValue) []byte {
	b, _ := v.(*types.AttributeValueMemberB)
	if b == nil {
		return nil
	}
	return b.Value
}

func integer(v types.AttributeValue) int64 {
	n, _ := v.(*types.AttributeValueMemberN)
	if n == nil {
		return 0
	}
	i, _ := strconv.ParseInt(n.Value, 10, 64) // only millpond writes this attribute
	return i
}

func key(kind byte, pk, sk []byte) item {
	if len(sk) == 0 {
		sk = []byte{0}
	}
	return item{"pk": bin(append([]byte{kind}, pk...)), "sk": bin(sk)}
}

func number8(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) } //nolint:gosec // it is positive

func messageKey(k stores.Key) item {
	return key(kindMessage, append(number8(sqlstore.ConsumerNumber(k.Consumer)), k.ID...), nil)
}

// idOf returns the message id in an item's key.
func idOf(i item) []byte { return blob(i["pk"])[1+8:] }

// row is the state of a message, pending, failed, completed or in quarantine.
type row struct {
	status      stores.Status // or statusClosed
	own         []byte        // random, new with each change that no other writer may miss
	fingerprint []byte
	trace       []byte
	completedAt int64  // times are in microseconds
	expires     int64  // in seconds, as the time to live wants
	list, ready string // the partitions in the indexes

	identity    // for messages that are not completed
	contentAt   // where their content is
	attempted   // those that have failed, wait or run
	reservation // who has them, and until when
	quarantined // those in quarantine
}

type identity struct {
	number, revision   int64 // the number is unique
	firstAt, lastAt    int64
	topic, coordinates string
	uuid, id           []byte
}

type contentAt struct {
	content               stores.ContentState
	codec                 string
	history, contentID    []byte
	chunks, bytes, packed int // its items, and the bytes of the payload and of everything
}

type attempted struct {
	placement                     stores.Placement
	class                         stores.Class
	cause, failure                string
	attempts, uncounted, redrives int
	budgetAt                      int64
	presumed, suspect, steps      bool // steps: it has recorded some
	orderKey                      []byte
}

type reservation struct {
	due      int64
	reserved bool
	holder   string
	beat     int64 // of the lease's last renewal
}

type quarantined struct {
	reason             stores.Reason
	state              stores.QuarantineStatus
	detail             string
	existing, lastSeen []byte // lastSeen is the own value of the last time it was seen
	seen               int
	decidedAt          int64
	oneWay             bool
}

// statusClosed is the status of an item that only keeps a late transaction from committing. It
// stands for no message.
const statusClosed = 0

// attributes returns pointers to the fields, by attribute name.
func (r *row) attributes() map[string]any {
	return map[string]any{
		"st": &r.status, "own": &r.own, "fp": &r.fingerprint, "tp": &r.trace, "cat": &r.completedAt, "ttl": &r.expires,
		"num": &r.number, "rev": &r.revision, "plc": &r.placement, "cst": &r.content, "att": &r.attempts, "unc": &r.uncounted, "red": &r.redrives,
		"due": &r.due, "bea": &r.beat, "bud": &r.budgetAt, "fst": &r.firstAt, "lst": &r.lastAt, "prs": &r.presumed, "rsv": &r.reserved, "sus": &r.suspect, "stp": &r.steps,
		"cls": &r.class, "cau": &r.cause, "err": &r.failure, "top": &r.topic, "crd": &r.coordinates, "hld": &r.holder, "cdc": &r.codec,
		"uid": &r.uuid, "his": &r.history, "okey": &r.orderKey, "cid": &r.contentID, "mid": &r.id, "chn": &r.chunks, "siz": &r.bytes, "pck": &r.packed, "lpk": &r.list, "dpk": &r.ready,
		"rsn": &r.reason, "det": &r.detail, "qst": &r.state, "ext": &r.existing, "seen": &r.seen, "sow": &r.lastSeen, "dec": &r.decidedAt, "one": &r.oneWay,
	}
}

// put adds the attributes that are not zero to an item.
func (r *row) put(to item) item {
	for name, field := range r.attributes() {
		v := reflect.ValueOf(field).Elem()
		if v.IsZero() && name != "st" && (name != "rev" || r.number == 0) {
			continue
		}
		switch v.Kind() {
		case reflect.Bool:
			to[name] = yes
		case reflect.String:
			to[name] = str(v.String())
		case reflect.Slice:
			to[name] = bin(v.Bytes())
		default:
			to[name] = num(v.Convert(reflect.TypeFor[int64]()).Int())
		}
	}
	return to
}

// rowOf returns the row of an item, or nil without one.
func rowOf(from item) *row {
	if len(from) == 0 {
		return nil
	}
	r := &row{}
	for name, field := range r.attributes() {
		v := reflect.ValueOf(field).Elem()
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(from[name] != nil) // false is left out
		case reflect.String:
			v.SetString(text(from[name]))
		case reflect.Slice:
			v.SetBytes(blob(from[name]))
		default:
			v.Set(reflect.ValueOf(integer(from[name])).Convert(v.Type()))
		}
	}
	return r
}

func (r *row) version() int64 { return sqlstore.Version(r.number, r.revision) }

// known reports whether the row stands for a message.
func (r *row) known() bool { return r != nil && r.status != statusClosed }

// is reports whether the row has a status.
func (r *row) is(s stores.Status) bool { return r != nil && r.status == s }

// index sets the row's partitions in the indexes.
func (r *row) index(consumer int64, id []byte) {
	r.list, r.ready = partition(consumer, id), ""
	if !r.is(stores.StatusPending) {
		r.due = 0
	} else if r.placement == stores.PlacementParked {
		r.ready = r.list
	}
}

// has reports whether a worker reserved the message or somebody holds its lease.
func (r *row) has(now int64) bool {
	return r.is(stores.StatusPending) && (r.reserved || r.holder != "") && r.due > now
}
