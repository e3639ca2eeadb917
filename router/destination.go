package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// DestinationConfig configures a broker that handlers publish to.
type DestinationConfig struct {
	URL                    URL `config:"url" example:"kafka://events:9092" about:"The broker, as broker.url. A program that runs a relay must import its adapter. If it is away when the program starts, its messages wait."`
	middleware.Destination `config:""`
}

// exampleDestination is the destination in the starter configuration.
const exampleDestination = "events"

var destinationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func destinationURL(name string) string { return "destinations." + name + ".url" }

func isOfDestination(f field.Field) bool { return strings.HasPrefix(f.Path, "destinations.*.") }

// variableOf returns the variable of a field, for a destination if one is given.
func variableOf(f field.Field, destination string) string {
	if !isOfDestination(f) {
		return f.Variable(variablePrefix)
	}
	return destinationPrefix + inCapitals(destination) + variableEnd(f)
}

const destinationPrefix = variablePrefix + "DESTINATIONS_"

func variableEnd(f field.Field) string {
	return "_" + strings.ToUpper(f.Path[strings.LastIndex(f.Path, ".")+1:])
}

var notInVariables = regexp.MustCompile(`[^A-Z0-9]`)

func inCapitals(name string) string {
	return notInVariables.ReplaceAllString(strings.ToUpper(name), "_")
}

// destination returns the destination whose field a variable sets. Without a file the variable
// names the destination.
func (r *reading) destination(f field.Field, variable string) (name string, ok bool) {
	if !isOfDestination(f) {
		return "", false
	}
	for name := range r.config.Destinations {
		if variableOf(f, name) == variable {
			return name, true
		}
	}
	name, begins := strings.CutPrefix(variable, destinationPrefix)
	name, ends := strings.CutSuffix(name, variableEnd(f))
	return strings.ToLower(strings.ReplaceAll(name, "_", "-")), r.name == "" && begins && ends && name != ""
}

func (r *reading) checkDestinations() {
	all, variables := r.config.Destinations, make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path, d := join("destinations", name), all[name]
		there := r.origins[path]
		_, programs := r.config.Relay.Publishers[name]
		hasURL := d.URL.Reveal() != ""
		if other, taken := variables[inCapitals(name)]; taken {
			r.badf(there, path, "has the same variables as destinations.%s: give one of them another name", other)
		}
		variables[inCapitals(name)] = name
		switch {
		case name == "":
			r.badf(there, path, "has no name: the destination without one is the service's own broker, which needs no section")
		case !destinationName.MatchString(name) || len(name) > stores.MaxDestinationBytes:
			r.badf(there, path, "has a name that cannot be one: use up to %d letters, digits, '.', '-' and '_'", stores.MaxDestinationBytes)
		case hasURL && r.config.Relay.External:
			r.wrong(destinationURL(name), "is "+d.URL.String()+", and relay.external is true, so that nothing is published to it by a relay: remove one")
		case !hasURL && !programs && !r.config.Relay.External:
			r.badf(there, destinationURL(name), "is missing: write the URL of its broker, such as kafka://host:9092, or set %s%s_URL", destinationPrefix, inCapitals(name))
		case hasURL && programs:
			r.wrong(destinationURL(name), "is "+d.URL.String()+", and Relay.Publishers of the program has this destination, too: remove one")
		}
		if d.Topic != "" && len(d.Topics) > 0 && !slices.Contains(d.Topics, d.Topic) {
			r.wrong(path+".topic", "is "+quoted(d.Topic)+", which is not one of "+path+".topics: add it there")
		}
	}
}

// adapters checks that the program imports the adapters of the URLs that it opens.
func (c *Config) adapters() error {
	var errs []error
	for _, u := range c.urls() {
		if c.Relay.On || !strings.HasPrefix(u.path, "destinations.") {
			errs = append(errs, c.adapter(u))
		}
	}
	return errors.Join(errs...)
}

// destination is a broker that the relay publishes to. If it was away, it is opened when there
// are messages for it.
type destination struct {
	name string
	open func(context.Context) (brokers.Broker, message.Publisher, error)

	mu        sync.Mutex
	broker    brokers.Broker
	publisher message.Publisher // nil: the broker is away
}

// openDestinations opens the relay's destinations at once. An unreachable one does not keep the
// service from starting.
func (w *wiring) openDestinations(ctx context.Context) error {
	if !w.config.Relay.On || w.config.Relay.External {
		return nil
	}
	errs := make([]error, len(w.config.Destinations))
	var opening sync.WaitGroup
	for i, name := range slices.Sorted(maps.Keys(w.config.Destinations)) {
		u := w.config.Destinations[name].URL
		if u.Reveal() == "" {
			continue // the program provides it
		}
		d := &destination{name: name, open: func(ctx context.Context) (brokers.Broker, message.Publisher, error) { return w.openURL(ctx, u) }}
		w.destinations = append(w.destinations, d)
		opening.Go(func() {
			_, err := d.reach(ctx)
			switch {
			case err == nil:
			case outbox.IsAway(err) && ctx.Err() == nil:
				w.log.Warn("millpond: a destination is away; its messages wait", slog.String("destination", name), slog.String("broker", u.String()), slog.Any("error", err))
			default:
				errs[i] = w.config.urlError(destinationURL(name), u, err)
			}
		})
	}
	opening.Wait()
	return errors.Join(errs...)
}

// openURL opens a broker and a publisher. Its errors have no secrets.
func (w *wiring) openURL(ctx context.Context, u URL) (brokers.Broker, message.Publisher, error) {
	broker, err := w.config.Program.Brokers.Open(ctx, u.Reveal())
	if err != nil {
		return nil, nil, withoutSecrets(err, u)
	}
	publisher, err := broker.Publisher(brokers.PublisherConfig{Logger: watermill.NewSlogLogger(w.log)})
	if err != nil {
		return nil, nil, withoutSecrets(errors.Join(err, broker.Close()), u)
	}
	return broker, publisher, nil
}

func (d *destination) reach(ctx context.Context) (_ message.Publisher, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.publisher == nil {
		d.broker, d.publisher, err = d.open(ctx)
	}
	return d.publisher, err
}

// relayed returns the publisher for the relay.
func (d *destination) relayed() message.Publisher {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.publisher != nil {
		return d.publisher
	}
	return d
}

// Publish implements message.Publisher.
func (d *destination) Publish(topic string, messages ...*message.Message) error {
	return errors.Join(d.PublishEach(context.Background(), topic, messages...)...)
}

// PublishEach implements brokers.EachPublisher. If the broker cannot be opened, every message
// gets that error.
func (d *destination) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	errs := make([]error, len(messages))
	publisher, err := d.reach(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("router: destination %q: %w: %w", d.name, brokers.ErrUnavailable, err)
		}
		return errs
	}
	if each, ok := publisher.(brokers.EachPublisher); ok {
		return each.PublishEach(ctx, topic, messages...)
	}
	for i, msg := range messages {
		errs[i] = publisher.Publish(topic, msg)
	}
	return errs
}

// Close implements io.Closer.
func (d *destination) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.publisher == nil {
		return nil
	}
	return errors.Join(d.publisher.Close(), d.broker.Close())
}
