package router

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// The checks of single fields. Each returns what to do about a wrong value.

func serviceName(value any) string {
	name, _ := value.(string)
	if (stores.Consumer{Service: name, Handler: "handler"}).Validate() != nil {
		return "use a short name without '/' and control characters"
	}
	return ""
}

// urlOf checks the URL of a broker, or of a store.
func urlOf(kind, examples string) func(any) string {
	return func(value any) string {
		raw, _ := value.(URL)
		u, err := url.Parse(raw.Reveal())
		if err != nil {
			return urlmux.FixUnparsed
		}
		if u.Scheme == "" || u.Opaque != "" {
			return "write scheme://…, such as " + examples
		}
		if path, ok := adapters[strings.ToLower(u.Scheme)]; ok && !strings.HasPrefix(path, kind) {
			other, _, _ := strings.Cut(path, "/")
			return u.Scheme + " is one of the " + other + ": write one of the " + kind + ", such as " + examples
		}
		return ""
	}
}

func hostPort(value any) string {
	text, _ := value.(string)
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
		return "write host:port, such as 127.0.0.1:9464"
	}
	return ""
}

func positive(value any) string {
	if n, _ := value.(int); n < 1 {
		return "use a positive number"
	}
	return ""
}

func positiveOrOff(value any) string {
	if n, _ := value.(int); n < 1 && n != -1 {
		return "use a positive number, or -1 for none"
	}
	return ""
}

func positiveTime(value any) string {
	if d, _ := value.(time.Duration); d <= 0 {
		return "use a positive duration such as 500ms, 30s or 24h"
	}
	return ""
}

func idBytes(value any) string {
	const most = stores.MaxIDBytes - len("u:")
	if n, _ := value.(int); n < 1 || n > most {
		return fmt.Sprintf("use a number from 1 to %d, which is what stores take", most)
	}
	return ""
}

func keyNumber(value any) string {
	if n, _ := value.(int); n < 1 || n > 255 {
		return "use a number from 1 to 255"
	}
	return ""
}

func longSecret(value any) string {
	const least = 16
	if s, _ := value.(Secret); len(s.Reveal()) < least {
		return "use at least 16 bytes, such as from: openssl rand -base64 32"
	}
	return ""
}

func oneOf(words ...string) func(any) string {
	return func(value any) string {
		word, _ := value.(string)
		if slices.Contains(words, word) {
			return ""
		}
		if best, ok := nearest(word, words); ok {
			return "did you mean " + best + "?"
		}
		return "use " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	}
}

func stableHeaders(value any) string {
	names, _ := value.([]string)
	for _, name := range names {
		switch strings.ToLower(name) {
		case "":
			return "remove the empty name"
		case "traceparent", "tracestate", "baggage", "x-death", "x-delivery-count":
			return "remove " + name + ", which changes with each delivery"
		}
	}
	return ""
}

func orderKey(value any) string {
	text, _ := value.(string)
	if field, ok := strings.CutPrefix(text, "metadata:"); text == "key" || ok && field != "" && isTrimmed(field) {
		return ""
	}
	return "use key, or metadata:<field>"
}

func keyList(value any) string {
	texts, _ := value.([]string)
	_, fix := keyChain(texts, nil)
	return fix
}

func scopeList(value any) string {
	texts, _ := value.([]string)
	_, fix := keyChain([]string{"uuid"}, texts)
	return fix
}

// keyChain makes what finds the ids of messages.
func keyChain(links, scopes []string) (chain keys.Chain, fix string) {
	for i, text := range links {
		link, fix := keyLink(text)
		if fix != "" {
			return chain, fix
		}
		if i == 0 {
			chain = keys.First(link)
		} else {
			chain = chain.Then(link)
		}
	}
	if len(links) == 0 {
		return chain, "name at least one, such as uuid"
	}
	for _, text := range scopes {
		scope, fix := keyScope(text)
		if fix != "" {
			return chain, fix
		}
		chain = chain.Scoped(scope)
	}
	return chain, ""
}

func keyLink(text string) (link keys.Link, fix string) {
	kind, argument, _ := strings.Cut(text, ":")
	if !isTrimmed(argument) {
		return link, quoted(text) + " has a space: write " + quoted(kind+":"+strings.TrimSpace(argument))
	}
	switch {
	case text == "uuid":
		return keys.UUID(), ""
	case text == "native":
		return keys.Native(), ""
	case text == "broker_key":
		return keys.BrokerKey(), ""
	case text == "coordinates":
		return keys.Coordinates(), ""
	case kind == "metadata" && argument != "":
		return keys.Metadata(argument), ""
	case kind == "payload" && argument != "":
		return keys.Payload(strings.Split(argument, ".")...), ""
	}
	return link, quoted(text) + " is none of uuid, metadata:<field>, payload:<field>.<field>, native, broker_key and coordinates"
}

func keyScope(text string) (scope keys.Scope, fix string) {
	kind, argument, _ := strings.Cut(text, ":")
	if !isTrimmed(argument) {
		return scope, quoted(text) + " has a space: write " + quoted(kind+":"+strings.TrimSpace(argument))
	}
	switch {
	case text == "topic":
		return keys.Topic(), ""
	case kind == "event_type" && argument != "":
		return keys.EventType(argument), ""
	case kind == "tenant" && argument != "":
		return keys.Tenant(argument), ""
	}
	return scope, quoted(text) + " is none of topic, event_type:<metadata field> and tenant:<metadata field>"
}

// isTrimmed reports whether text is without spaces around it: the rest of a value in quotes
// that was written as YAML's mappings are.
func isTrimmed(text string) bool { return strings.TrimSpace(text) == text }

// plainText is text with its secrets.
func plainText(value any) string {
	switch v := value.(type) {
	case URL:
		return v.Reveal()
	case Secret:
		return v.Reveal()
	}
	return text(value)
}

// text is a value as a file has it, without secrets.
func text(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return shortDuration(v)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case bool:
		return strconv.FormatBool(v)
	}
	return fmt.Sprint(value)
}

// shortDuration is 5m rather than 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
