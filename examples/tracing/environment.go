package main

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/kafka"
)

const (
	brokerVariable = "MILLPOND_BROKER_URL"
	storeVariable  = "MILLPOND_STORE_URL"
	listenVariable = "MILLPOND_HTTP_LISTEN"
)

// environment is what the services are configured by, with a broker and a database of
// this run for what the user's does not name.
type environment struct {
	variables []string
	closers   []func() error
}

func newEnvironment(ctx context.Context, o options, progress io.Writer) (_ *environment, err error) {
	e := &environment{variables: slices.Clone(o.environ)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if o.listen != "" {
		e.variables = append(e.variables, listenVariable+"="+o.listen)
	}
	if e.get(storeVariable) == "" {
		dir, err := os.MkdirTemp("", "tracing-")
		if err != nil {
			return nil, err
		}
		e.closers = append(e.closers, func() error { return os.RemoveAll(dir) })
		path := (&url.URL{Path: filepath.Join(dir, "warehouse.db")}).EscapedPath()
		e.variables = append(e.variables, storeVariable+"=sqlite://"+path)
	}
	if e.get(brokerVariable) == "" {
		if _, err := io.WriteString(progress, "starting a Kafka; "+brokerVariable+" names another broker\n"); err != nil {
			return nil, err
		}
		server, err := kafka.Start(ctx, kafka.Config{})
		if err != nil {
			return nil, err
		}
		e.closers = append(e.closers, server.Close)
		e.variables = append(e.variables, brokerVariable+"=kafka://"+server.Address()+"/?create_topics=true&partitions=1")
	}
	return e, nil
}

func (e *environment) get(name string) (value string) {
	for _, variable := range e.variables {
		if v, ok := strings.CutPrefix(variable, name+"="); ok {
			value = v
		}
	}
	return value
}

// Close ends what was started, the last first.
func (e *environment) Close() (err error) {
	for _, closer := range slices.Backward(e.closers) {
		err = errors.Join(err, closer())
	}
	return err
}
