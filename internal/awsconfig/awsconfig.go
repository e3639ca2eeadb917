// Package awsconfig finds what the clients of AWS's services need.
package awsconfig

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Wanted is what a package's configuration says.
type Wanted struct {
	Package     string      // which begins errors
	AWS         *aws.Config // nil: the SDK's default chain
	Region      string      // empty: that of AWS, or what the SDK finds
	Endpoint    string
	Connections int // idle ones that are kept to one host, by a client of the package's own
}

// Load finds region and credentials. hangUp closes the idle connections of a client of the
// package's own, and does nothing to the caller's.
func Load(ctx context.Context, w Wanted) (loaded aws.Config, hangUp func(), err error) {
	hangUp = func() {}
	if w.AWS != nil {
		loaded = w.AWS.Copy()
	} else if loaded, err = config.LoadDefaultConfig(ctx); err != nil {
		return loaded, hangUp, fmt.Errorf("%s: the configuration of AWS cannot be read: %w", w.Package, err)
	}
	if w.Region != "" {
		loaded.Region = w.Region
	}
	if w.Endpoint != "" {
		loaded.BaseEndpoint = aws.String(w.Endpoint)
	}
	switch {
	case loaded.Region == "":
		err = errors.New("no region: add the parameter region, or set AWS_REGION")
	case loaded.Credentials == nil:
		err = errors.New("no credentials: give Config.AWS a provider, or leave Config.AWS nil for the SDK's chain")
	}
	if err != nil {
		return loaded, hangUp, fmt.Errorf("%s: %w", w.Package, err)
	}
	if loaded.HTTPClient == nil || w.AWS == nil {
		client := ownHTTP(loaded.HTTPClient, w.Connections)
		loaded.HTTPClient, hangUp = client, client.CloseIdleConnections
	}
	return loaded, hangUp, nil
}

// ownHTTP returns a client with the certificates that the SDK's has read, whose connections the
// package closes.
func ownHTTP(like aws.HTTPClient, connections int) *http.Client {
	builder, ok := like.(*awshttp.BuildableClient)
	if !ok {
		builder = awshttp.NewBuildableClient()
	}
	transport := builder.GetTransport()
	transport.MaxIdleConnsPerHost = connections
	return &http.Client{
		Transport: transport,
		// As the SDK's own client: signatures are for one host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
