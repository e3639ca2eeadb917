package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
)

// requestTimeout bounds a request that does not wait for messages.
const requestTimeout = 10 * time.Second

// connect makes the clients.
func (b *Broker) connect(ctx context.Context) error {
	c, err := b.config.load(ctx)
	if err != nil {
		return err
	}
	client := inMemory{c.HTTPClient}
	c.HTTPClient = client
	b.hang = func() {}
	if ours := b.config.AWS == nil || b.config.AWS.HTTPClient == nil; ours {
		b.hang = client.CloseIdleConnections
	}
	b.aws = c
	b.sqs = b.newSQS()
	b.sns = sns.NewFromConfig(c, b.config.SNSOptions...)
	return nil
}

// newSQS makes a client with options of its own.
func (b *Broker) newSQS(options ...func(*sqs.Options)) *sqs.Client {
	return sqs.NewFromConfig(b.aws, append(append([]func(*sqs.Options){}, b.config.SQSOptions...), options...)...)
}

// load finds region and credentials.
func (c *Config) load(ctx context.Context) (aws.Config, error) {
	var loaded aws.Config
	if c.AWS != nil {
		loaded = c.AWS.Copy()
	} else {
		var err error
		if loaded, err = config.LoadDefaultConfig(ctx); err != nil {
			return loaded, fmt.Errorf("sqs: the configuration of AWS cannot be read: %w", err)
		}
	}
	if c.Region != "" {
		loaded.Region = c.Region
	}
	if c.Endpoint != "" {
		loaded.BaseEndpoint = aws.String(c.Endpoint)
	}
	if loaded.Region == "" {
		return loaded, errors.New("sqs: no region: add the parameter region, or set AWS_REGION")
	}
	if loaded.Credentials == nil {
		return loaded, errors.New("sqs: no credentials: give Config.AWS a provider, or leave Config.AWS nil for the SDK's chain")
	}
	if loaded.HTTPClient == nil || c.AWS == nil {
		loaded.HTTPClient = ownHTTP(loaded.HTTPClient)
	}
	if loaded.Retryer == nil {
		// No quota: it counts what the service answers to all requests of a client, and
		// would make the last delete fail for the first receive.
		loaded.Retryer = func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter = ratelimit.None })
		}
	}
	if _, err := loaded.Credentials.Retrieve(ctx); err != nil {
		if ctx.Err() != nil {
			return loaded, fmt.Errorf("sqs: no credentials within %s: %w: %w", c.ConnectTimeout, brokers.ErrUnavailable, err)
		}
		return loaded, fmt.Errorf("sqs: %w: no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role: %w", ErrDenied, err)
	}
	return loaded, nil
}

// once turns the SDK's own repetitions off, for requests that are repeated here.
func once(o *sqs.Options) { o.RetryMaxAttempts = 1 }
