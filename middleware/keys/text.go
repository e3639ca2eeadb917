package keys

import (
	"fmt"
	"strconv"
	"strings"
)

// UnmarshalText sets the links of the chain from a list such as native,
// metadata:event_id: uuid, metadata:<field>, payload:<field>.<field>, native, broker_key
// and coordinates. Its scopes stay.
func (c *Chain) UnmarshalText(text []byte) error {
	chain := Chain{}
	for item := range strings.SplitSeq(string(text), ",") {
		link, err := parseLink(strings.TrimSpace(item))
		if err != nil {
			return err
		}
		chain = chain.Then(link)
	}
	c.links = chain.links
	return nil
}

// MarshalText returns the links of the chain as UnmarshalText takes them.
func (c Chain) MarshalText() ([]byte, error) {
	texts := make([]string, len(c.links))
	for i, link := range c.links {
		texts[i] = link.text()
	}
	return []byte(strings.Join(texts, ", ")), nil
}

func (l Link) text() string {
	switch l.kind {
	case 'h':
		return "metadata:" + l.label
	case 'p':
		return "payload:" + strings.ReplaceAll(l.label, " ", ".")
	}
	return strings.ReplaceAll(l.name, " ", "_")
}

func parseLink(text string) (Link, error) {
	kind, argument, err := cut(text)
	switch {
	case err != nil:
		return Link{}, err
	case text == "":
		return Link{}, fmt.Errorf("name at least one, such as uuid")
	case text == "uuid":
		return UUID(), nil
	case text == "native":
		return Native(), nil
	case text == "broker_key":
		return BrokerKey(), nil
	case text == "coordinates":
		return Coordinates(), nil
	case kind == "metadata" && argument != "":
		return Metadata(argument), nil
	case kind == "payload" && argument != "":
		return Payload(strings.Split(argument, ".")...), nil
	}
	return Link{}, fmt.Errorf("%q is none of uuid, metadata:<field>, payload:<field>.<field>, native, broker_key and coordinates", text)
}

// Scopes are scopes that can be written as text.
type Scopes []Scope

// UnmarshalText sets the scopes from a list of topic, event_type:<metadata field> and
// tenant:<metadata field>.
func (s *Scopes) UnmarshalText(text []byte) error {
	var scopes Scopes
	for item := range strings.SplitSeq(string(text), ",") {
		item = strings.TrimSpace(item)
		kind, argument, err := cut(item)
		switch {
		case err != nil:
			return err
		case item == "":
		case item == "topic":
			scopes = append(scopes, Topic())
		case kind == "event_type" && argument != "":
			scopes = append(scopes, EventType(argument))
		case kind == "tenant" && argument != "":
			scopes = append(scopes, Tenant(argument))
		default:
			return fmt.Errorf("%q is none of topic, event_type:<metadata field> and tenant:<metadata field>", item)
		}
	}
	*s = scopes
	return nil
}

// MarshalText returns the scopes as UnmarshalText takes them.
func (s Scopes) MarshalText() ([]byte, error) {
	texts := make([]string, len(s))
	for i, scope := range s {
		texts[i] = strings.NewReplacer("event type in ", "event_type:", "tenant in ", "tenant:").Replace(scope.name)
	}
	return []byte(strings.Join(texts, ", ")), nil
}

// cut cuts text at its colon. A quoted argument may contain a space.
func cut(text string) (kind, argument string, err error) {
	kind, argument, _ = strings.Cut(text, ":")
	if trimmed := strings.TrimSpace(argument); trimmed != argument {
		return "", "", fmt.Errorf("%q has a space: write %s", text, strconv.Quote(kind+":"+trimmed))
	}
	return kind, argument, nil
}
