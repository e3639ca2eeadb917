package official

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
const Scheme = "kafka+watermill"

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
		errs = append(errs, fmt.Errorf("kafka/official: the URL names a user: remove it, and set %s and %s", UsernameVariable, PasswordVariable))
	}
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		errs = append(errs, errors.New("kafka/official: the URL names a path or fragment: write "+Scheme+"://host:port,host:port/?parameter=value, the topic is given to Subscribe and Publish"))
	}
	s := &settings{}
	if u.Host == "" {
		errs = append(errs, errors.New("kafka/official: the URL names no broker: write "+Scheme+"://host:port,host:port"))
	} else {
		s.Brokers = strings.Split(u.Host, ",")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		errs = append(errs, errors.New("kafka/official: the URL's query cannot be parsed: write parameter=value pairs joined by &, percent-encoded"))
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := parameters[name]
		switch values := query[name]; {
		case onlyOwn[name]:
			errs = append(errs, fmt.Errorf("kafka/official: parameter %q is for kafka://, watermill-kafka has no such choice: remove it, or use that scheme", name))
		case !known: // its value may be a secret
			errs = append(errs, fmt.Errorf("kafka/official: parameter %s is not known: remove it or use one of %s",
				urlmux.ShownName(name), strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")))
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("kafka/official: parameter %q is given %d times: give it once", name, len(values)))
		default:
			if fix := set(s, values[0]); fix != "" {
				errs = append(errs, fmt.Errorf("kafka/official: parameter %q is %q: %s", name, values[0], fix))
			}
		}
	}
	errs = append(errs, s.readTLS()...)
	if len(errs) == 0 {
		errs = append(errs, s.validate())
	}
	return s.Config, errors.Join(errs...)
}

// onlyOwn are parameters of kafka:// that nothing here stands for.
var onlyOwn = map[string]bool{
	"in_flight_per_partition": true, "order": true, "protocol": true, "commit_distance": true,
	"partitioner": true, "publish_timeout": true,
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
	"tls":             func(s *settings, value string) string { return choice(&s.tls, value, "false", "true") },
	"tls_ca":          func(s *settings, value string) string { return text(&s.ca, value) },
	"tls_cert":        func(s *settings, value string) string { return text(&s.cert, value) },
	"tls_key":         func(s *settings, value string) string { return text(&s.key, value) },
	"tls_server_name": func(s *settings, value string) string { return text(&s.tlsServerName, value) },
	"sasl": func(s *settings, value string) string {
		switch s.SASL = SASL(value); s.SASL {
		case SASLPlain, SASLScramSHA256, SASLScramSHA512:
			return ""
		default:
			return "use plain, scram-sha-256 or scram-sha-512"
		}
	},
	"client_id":       func(s *settings, value string) string { return text(&s.ClientID, value) },
	"connect_timeout": func(s *settings, value string) string { return duration(&s.ConnectTimeout, value) },

	"offset": func(s *settings, value string) string {
		return choice(&s.Consume.StartAtNewest, value, "oldest", "newest")
	},
	"session_timeout":  func(s *settings, value string) string { return duration(&s.Consume.SessionTimeout, value) },
	"rebalance_drain":  func(s *settings, value string) string { return duration(&s.Consume.RebalanceDrain, value) },
	"commit_interval":  func(s *settings, value string) string { return duration(&s.Consume.CommitInterval, value) },
	"redelivery_delay": func(s *settings, value string) string { return duration(&s.Consume.RedeliveryDelay, value) },
	"wait_for_topic":   func(s *settings, value string) string { return duration(&s.Consume.WaitForTopic, value) },
	"time": func(s *settings, value string) string {
		return choice(&s.Consume.ProducerTime, value, "broker", "producer")
	},

	"key_metadata":      func(s *settings, value string) string { return text(&s.Publish.KeyMetadata, value) },
	"max_message_bytes": func(s *settings, value string) string { return positive(&s.Publish.MaxBytes, value) },
	"create_topics": func(s *settings, value string) string {
		return choice(&s.Publish.CreateTopics, value, "false", "true")
	},
	"partitions":  func(s *settings, value string) string { return positive(&s.Publish.Partitions, value) },
	"replication": func(s *settings, value string) string { return positive(&s.Publish.Replication, value) },
}

func text(field *string, value string) string {
	*field = value
	return ""
}

func choice(field *bool, value, whenFalse, whenTrue string) string {
	if value != whenFalse && value != whenTrue {
		return "use " + whenFalse + " or " + whenTrue
	}
	*field = value == whenTrue
	return ""
}

func positive(field *int, value string) string {
	n, err := strconv.ParseInt(value, 10, 31)
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
			errs = append(errs, errors.New("kafka/official: the URL has parameters for TLS, which is off: add tls=true"))
		}
		return errs
	}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.tlsServerName}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		s.TLS.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("kafka/official: parameter \"tls_ca\": %w: name a file with the certificates of the authority, in PEM", err))
		case !s.TLS.RootCAs.AppendCertsFromPEM(pem):
			errs = append(errs, fmt.Errorf("kafka/official: parameter \"tls_ca\": no certificate in %q: name a file with the certificates of the authority, in PEM", s.ca))
		}
	}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			errs = append(errs, fmt.Errorf("kafka/official: parameters \"tls_cert\" and \"tls_key\": %w: name the files of a certificate and of its key, in PEM", err))
		}
		s.TLS.Certificates = []tls.Certificate{pair}
	}
	return errs
}
