package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rabbitmq/amqp091-go"
)

// Text converts a header's value to text: texts and bytes unchanged, numbers in decimal, booleans
// as true or false, times in RFC 3339 and UTC, nothing as the empty text, tables and lists in JSON.
func Text(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	switch v := plain(value).(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	default:
		text, err := json.Marshal(v)
		if err != nil { // plain returns only values that have a JSON form
			return fmt.Sprint(v)
		}
		return string(text)
	}
}

// plain converts the value to types that JSON has.
func plain(value any) any {
	switch v := value.(type) {
	case nil, bool, string:
		return v
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return base64.StdEncoding.EncodeToString(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp091.Decimal:
		return json.Number(decimal(v))
	case float32:
		return float(float64(v), 32)
	case float64:
		return float(v, 64)
	case int, int8, int16, int32, int64, uint8, uint16, uint32, uint64:
		return json.Number(fmt.Sprint(v))
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plain(v[i])
		}
		return list
	case amqp091.Table:
		table := make(map[string]any, len(v))
		for name := range v {
			table[name] = plain(v[name])
		}
		return table
	default: // the protocol has no other types
		return fmt.Sprint(v)
	}
}

func float(v float64, bits int) any {
	text := strconv.FormatFloat(v, 'g', -1, bits)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return text
	}
	return json.Number(text)
}

// decimal writes value × 10^-scale without rounding.
func decimal(d amqp091.Decimal) string {
	digits := strconv.FormatInt(int64(d.Value), 10)
	if d.Scale == 0 {
		return digits
	}
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	if missing := int(d.Scale) + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - int(d.Scale)
	return sign + digits[:point] + "." + digits[point:]
}

// Size returns how many bytes the headers take in the single frame that must hold them.
func Size(headers amqp091.Table) int {
	n := 4
	for name, value := range headers {
		n += 1 + len(name) + size(value)
	}
	return n
}

func size(value any) int {
	const kind = 1
	switch v := value.(type) {
	case string:
		return kind + 4 + len(v)
	case []byte:
		return kind + 4 + len(v)
	case amqp091.Table:
		return kind + Size(v)
	case []any:
		n := kind + 4
		for i := range v {
			n += size(v[i])
		}
		return n
	default:
		return kind + 8 // no number is longer
	}
}
