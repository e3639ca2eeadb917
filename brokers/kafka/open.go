package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/urlmux"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "kafka"

func init() { brokers.DefaultMux().Handle(Scheme, Open) }

// Open connects to the cluster that a URL names; the package documentation lists the
// parameters. All mistakes in the URL are returned as one error, which repeats no user
// info and no value that may be a secret. It is a brokers.Opener, for programs with a
// mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	return New(ctx, config)
}

// ParseURL returns the configuration that a URL stands for, so that a program can add
// to it what a URL cannot say before it calls [New]. Its errors are those of [Open]
// before it connects.
func ParseURL(u *url.URL) (Config, error) {
	var errs []error
	if u.User != nil {
		errs = append(errs, errors.New("kafka: the URL names a user: remove it, and set MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD"))
	}
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		errs = append(errs, errors.New("kafka: the URL names a path or fragment: write kafka://host:port,host:port/?parameter=value, the topic is given to Subscribe and Publish"))
	}
	s := &settings{}
	if u.Host == "" {
		errs = append(errs, errors.New("kafka: the URL names no broker: write kafka://host:port,host:port"))
	} else {
		s.Brokers = strings.Split(u.Host, ",")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		errs = append(errs, errors.New("kafka: the URL's query cannot be parsed: write parameter=value pairs joined by &, percent-encoded"))
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := parameters[name]
		switch values := query[name]; {
		case !known: // its value may be a secret
			errs = append(errs, fmt.Errorf("kafka: parameter %s is not known: remove it or use one of %s",
				urlmux.ShownName(name), strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")))
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("kafka: parameter %q is given %d times, as %q: give it once", name, len(values), values))
		default:
			if fix := set(s, values[0]); fix != "" {
				errs = append(errs, fmt.Errorf("kafka: parameter %q is %q: %s", name, values[0], fix))
			}
		}
	}
	errs = append(errs, s.readTLS()...)
	if len(errs) == 0 {
		errs = append(errs, s.validate())
	}
	return s.Config, errors.Join(errs...)
}

// settings is what the parameters of a URL set.
type settings struct {
	Config

	tls           bool
	ca, cert, key string
	tlsServerName string
}

// parameters maps the URL's parameters to fields. A setter returns what is to be
// written instead.
var parameters = map[string]func(s *settings, value string) (fix string){
	"tls": func(s *settings, value string) string { return boolean(&s.tls, value) },
	"tls_ca": func(s *settings, value string) string {
		s.ca = value
		return ""
	},
	"tls_cert": func(s *settings, value string) string {
		s.cert = value
		return ""
	},
	"tls_key": func(s *settings, value string) string {
		s.key = value
		return ""
	},
	"tls_server_name": func(s *settings, value string) string {
		s.tlsServerName = value
		return ""
	},
	"sasl": func(s *settings, value string) string {
		return oneOf(&s.SASL, value, SASLPlain, SASLScramSHA256, SASLScramSHA512)
	},
	"client_id": func(s *settings, value string) string {
		s.ClientID = value
		return ""
	},
	"connect_timeout": func(s *settings, value string) string { return duration(&s.ConnectTimeout, value) },

	"in_flight_per_partition": func(s *settings, value string) string { return positive(&s.Consume.InFlightPerPartition, value) },
	"order": func(s *settings, value string) string {
		return oneOf(&s.Consume.Order, value, OrderPartition, OrderKey, OrderNone)
	},
	"offset": func(s *settings, value string) string {
		return choice(&s.Consume.StartAtNewest, value, "oldest", "newest")
	},
	"protocol": func(s *settings, value string) string {
		return oneOf(&s.Consume.Protocol, value, ProtocolClassic, ProtocolConsumer)
	},
	"session_timeout":  func(s *settings, value string) string { return duration(&s.Consume.SessionTimeout, value) },
	"rebalance_drain":  func(s *settings, value string) string { return duration(&s.Consume.RebalanceDrain, value) },
	"commit_interval":  func(s *settings, value string) string { return duration(&s.Consume.CommitInterval, value) },
	"commit_distance":  func(s *settings, value string) string { return positive(&s.Consume.CommitDistance, value) },
	"redelivery_delay": func(s *settings, value string) string { return duration(&s.Consume.RedeliveryDelay, value) },
	"wait_for_topic":   func(s *settings, value string) string { return duration(&s.Consume.WaitForTopic, value) },
	"time": func(s *settings, value string) string {
		return choice(&s.Consume.ProducerTime, value, "broker", "producer")
	},

	"key_metadata": func(s *settings, value string) string {
		s.Publish.KeyMetadata = value
		return ""
	},
	"partitioner": func(s *settings, value string) string {
		return oneOf(&s.Publish.Partitioner, value, PartitionerMurmur2, PartitionerSarama)
	},
	"max_message_bytes": func(s *settings, value string) string { return positive(&s.Publish.MaxBytes, value) },
	"publish_timeout":   func(s *settings, value string) string { return duration(&s.Publish.Timeout, value) },
	"create_topics":     func(s *settings, value string) string { return boolean(&s.Publish.CreateTopics, value) },
	"partitions":        func(s *settings, value string) string { return positive(&s.Publish.Partitions, value) },
	"replication":       func(s *settings, value string) string { return positive(&s.Publish.Replication, value) },
}

func boolean(field *bool, value string) string { return choice(field, value, "false", "true") }

func choice(field *bool, value, whenFalse, whenTrue string) string {
	if value != whenFalse && value != whenTrue {
		return "use " + whenFalse + " or " + whenTrue
	}
	*field = value == whenTrue
	return ""
}

func oneOf[T ~string](field *T, value string, known ...T) string {
	if !slices.Contains(known, T(value)) {
		names := make([]string, 0, len(known))
		for _, name := range known {
			names = append(names, string(name))
		}
		return "use " + strings.Join(names, " or ")
	}
	*field = T(value)
	return ""
}

func positive(field *int, value string) string {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 1 {
		return "use a positive number such as 32"
	}
	*field = int(n)
	return ""
}

func duration(field *time.Duration, value string) string {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return "use a duration such as 500ms or 10s"
	}
	*field = d
	return ""
}

// readTLS loads the files that the URL names.
func (s *settings) readTLS() (errs []error) {
	if !s.tls {
		if s.ca != "" || s.cert != "" || s.key != "" || s.tlsServerName != "" {
			errs = append(errs, errors.New("kafka: the URL has parameters for TLS, which is off: add tls=true"))
		}
		return errs
	}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.tlsServerName}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		s.TLS.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("kafka: parameter \"tls_ca\": %w: name a file with the certificates of the authority, in PEM", err))
		case !s.TLS.RootCAs.AppendCertsFromPEM(pem):
			errs = append(errs, fmt.Errorf("kafka: parameter \"tls_ca\": no certificate in %q: name a file with the certificates of the authority, in PEM", s.ca))
		}
	}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			errs = append(errs, fmt.Errorf("kafka: parameters \"tls_cert\" and \"tls_key\": %w: name the files of a certificate and of its key, in PEM", err))
		}
		s.TLS.Certificates = []tls.Certificate{pair}
	}
	return errs
}
