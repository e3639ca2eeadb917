package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/router"
)

// viaWatermill is the suffix of the schemes of Watermill's own adapters. This program does not
// import those: it uses millpond's adapter for the same server, which has the same parameters and
// some more.
const viaWatermill = "+watermill"

func init() {
	mux := brokers.DefaultMux()
	for _, scheme := range mux.Schemes() {
		switch scheme {
		case "kafka", "amqp", "amqps", "sqs":
			mux.Handle(scheme+viaWatermill, func(ctx context.Context, u *url.URL) (brokers.Broker, error) { return mux.Open(ctx, own(u)) })
			mux.HandleCheck(scheme+viaWatermill, func(u *url.URL) error { return mux.Check(own(u)) })
			mux.HandleExposure(scheme+viaWatermill, func(u *url.URL) error { return mux.Exposure(own(u)) })
		}
	}
}

func own(u *url.URL) string {
	plain := *u
	plain.Scheme = strings.TrimSuffix(u.Scheme, viaWatermill)
	return plain.String()
}

// notLinked returns what a check of the URL could not cover.
func notLinked(field string, u router.URL) []string {
	scheme, _, _ := strings.Cut(strings.ToLower(u.Reveal()), ":")
	plain, ok := strings.CutSuffix(scheme, viaWatermill)
	if !ok {
		return nil
	}
	return []string{fmt.Sprintf("%s: checked as %s://, which has more parameters than %s://: the service refuses those when it starts", field, plain, scheme)}
}
