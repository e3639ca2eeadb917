package dynamodb

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/millpond-go/millpond/stores"
)

// clock knows the service's time from the Date headers of its answers. They have whole seconds, so
// it keeps two bounds, which each answer may narrow. It uses only differences of this machine's
// clock.
type clock struct {
	mu        sync.Mutex
	base      time.Time // what differences are measured from
	low, high time.Duration
	at        time.Time // when the bounds were set or widened; zero: never
}

const (
	dateStep = time.Second      // the resolution of a date
	keepFor  = 10 * time.Minute // after this the bounds are widened, because clocks run at different rates
	slack    = 20 * time.Millisecond

	// hostMargin is the largest difference between the clocks of the service's machines.
	hostMargin = 2 * time.Second
)

// observe notes the date of an answer to a request.
func (c *clock) observe(date, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		c.base = sent
	}
	epoch := time.Unix(0, 0)
	low, high := date.Sub(epoch)-received.Sub(c.base), date.Sub(epoch)+dateStep-sent.Sub(c.base)
	if !c.at.IsZero() && received.Sub(c.at) > keepFor {
		c.low, c.high, c.at = c.low-slack, c.high+slack, received
	}
	if c.at.IsZero() || low > c.high || high < c.low {
		c.low, c.high, c.at = low, high, received
		return
	}
	c.low, c.high = max(c.low, low), min(c.high, high)
}

// errNoTime: no answer of the service has had a date yet.
var errNoTime = fmt.Errorf("%w: the service has not said what time it is", stores.ErrUnavailable)

// check returns an error if the time is not known yet. Once known, it stays known, so the store
// asks once.
func (c *clock) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return errNoTime
	}
	return nil
}

// bounds returns the earliest and the latest possible time, in microseconds.
func (c *clock) bounds() (low, high int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.base)
	return (c.low + passed).Microseconds(), (c.high + passed).Microseconds()
}

// now returns the earliest possible time, in microseconds.
func (c *clock) now() int64 {
	low, _ := c.bounds()
	return low
}

// answerWithin bounds a request, from sending it to reading all of its answer.
const answerWithin = 15 * time.Second

// dated is an HTTP client that sets a clock from the dates of answers, and bounds each request.
type dated struct {
	aws.HTTPClient
	clock  *clock
	within time.Duration
}

// Do implements aws.HTTPClient.
func (d dated) Do(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), d.within)
	response, err := d.HTTPClient.Do(r.WithContext(ctx))
	if err != nil {
		cancel()
		return response, err //nolint:wrapcheck // the SDK needs it unwrapped
	}
	response.Body = bounded{response.Body, cancel}
	if response.Header.Get("X-Amzn-Requestid") == "" { // a proxy answered
		return response, nil
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		d.clock.observe(date, sent, time.Now())
	}
	return response, nil
}

// bounded is the body of an answer, which must be read within dated.within.
type bounded struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close implements io.Closer.
func (b bounded) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // the body's own error
}
