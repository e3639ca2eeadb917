package sqs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// connections is more than the SDK's default: each poller needs one, and deletes and extensions
// need more.
const connections = 64

// inMemory sends request bodies as bytes in memory.
//
// The SDK wraps them, and closes the wrapper as soon as an answer's head arrives. On a busy machine
// net/http may not have read the wrapper's end by then. It takes the closed wrapper's error for a
// failed request, and closes the connection before the answer is read. After a receive, the
// messages are then hidden and nobody has them; other requests are repeated by the SDK, which sends
// a message twice. Bytes in memory also go out in one packet with the head.
type inMemory struct{ client aws.HTTPClient }

// Do implements aws.HTTPClient.
func (c inMemory) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 { // no body, or a stream
		return c.client.Do(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("sqs: the body of a request cannot be read: %w", err)
	}
	sent := r.WithContext(r.Context()) // r is the caller's
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	sent.Body, _ = sent.GetBody()
	return c.client.Do(sent)
}
