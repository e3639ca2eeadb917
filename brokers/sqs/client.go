package sqs

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/awsconfig"
)

// requestTimeout bounds requests other than receives.
const requestTimeout = 10 * time.Second

// connect makes the clients.
func (b *Broker) connect(ctx context.Context) error {
	c, hangUp, err := b.config.load(ctx)
	if err != nil {
		return err
	}
	c.HTTPClient, b.hang = inMemory{c.HTTPClient}, hangUp
	b.aws = c
	b.sqs = b.newSQS()
	b.sns = sns.NewFromConfig(c, b.config.SNSOptions...)
	return nil
}

// newSQS makes a client with its own options.
func (b *Broker) newSQS(options ...func(*sqs.Options)) *sqs.Client {
	return sqs.NewFromConfig(b.aws, append(append([]func(*sqs.Options){}, b.config.SQSOptions...), options...)...)
}

// load finds region and credentials.
func (c *Config) load(ctx context.Context) (loaded aws.Config, hangUp func(), err error) {
	loaded, hangUp, err = awsconfig.Load(ctx, awsconfig.Wanted{Package: "sqs", AWS: c.AWS, Region: c.Region, Endpoint: c.Endpoint, Connections: connections})
	if err != nil {
		return loaded, hangUp, err //nolint:wrapcheck // it has the prefix
	}
	if loaded.Retryer == nil {
		// Without a quota, which counts all requests of a client: a failed first receive would
		// prevent the last delete.
		loaded.Retryer = func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter = ratelimit.None })
		}
	}
	if _, err := loaded.Credentials.Retrieve(ctx); err != nil {
		if ctx.Err() != nil {
			return loaded, hangUp, fmt.Errorf("sqs: no credentials within %s: %w: %w", c.ConnectTimeout, brokers.ErrUnavailable, err)
		}
		return loaded, hangUp, fmt.Errorf("sqs: %w: no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role: %w", ErrDenied, err)
	}
	return loaded, hangUp, nil
}

// once turns off the SDK's own retries, for requests that are retried here.
func once(o *sqs.Options) { o.RetryMaxAttempts = 1 }
