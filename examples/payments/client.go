package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// client talks to the provider over HTTP, as a library of its would.
type client struct {
	url      string
	announce func(place string) // where a worker may be killed
}

// answer is what the provider says of a charge.
type answer struct {
	Receipt string `json:"receipt"`
}

func (c *client) charge(ctx context.Context, key string, o order) (receipt string, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	req.GetBody = nil // or net/http would send it again by itself, once it has lost the answer
	c.announce(beforeRequest)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err // it may be charged, and nobody knows: the next attempt asks with the same key
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the provider answers %s", resp.Status)
	}
	var a answer
	err = json.NewDecoder(resp.Body).Decode(&a)
	c.announce(afterAnswer)
	return a.Receipt, err
}
