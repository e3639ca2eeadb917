package sqs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// connections are more than the SDK keeps: each poller has one, and deletes and extensions
// go beside them.
const connections = 64

// inMemory sends bodies as what they are: bytes in memory.
//
// The SDK wraps them, and closes the wrapper as soon as the head of an answer is there. If
// net/http has not yet asked the wrapper for more after the last byte by then, as happens
// on a busy machine, the closed wrapper answers in a way that net/http takes for a request
// that failed, and the connection is closed under the answer. For a receive that means
// messages that are hidden and nobody has; for what the SDK then repeats, a message that is
// sent twice. Bytes in memory also go out in one packet with the head.
type inMemory struct{ client aws.HTTPClient }

// Do sends a request. It is an aws.HTTPClient.
func (c inMemory) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 { // nothing, or a stream
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
