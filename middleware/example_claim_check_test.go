package middleware_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millpond-go/millpond/middleware"
)

// objects is where large payloads are: a bucket, or a directory. Put may be called again with
// the same name and content; what it has returned nil for must be durable.
type objects interface {
	Put(ctx context.Context, name string, content []byte) error
	Get(ctx context.Context, name string) ([]byte, error) // fs.ErrNotExist if there is none
}

// What a kept payload begins with: itself follows, or the name of an object.
const (
	inRow     = 'r'
	elsewhere = 'e'
)

// claimCheck keeps payloads of more than so many bytes elsewhere, and a reference in the row.
// The name is the hash of the content, so that a second try writes the same object.
func claimCheck(to objects, most int) *middleware.Codec {
	return &middleware.Codec{
		Name: "claim-check",
		Encode: func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
			if len(k.Payload) <= most {
				k.Payload = append([]byte{inRow}, k.Payload...)
				return k, nil
			}
			sum := sha256.Sum256(k.Payload)
			name := hex.EncodeToString(sum[:])
			if err := to.Put(ctx, name, k.Payload); err != nil {
				return k, fmt.Errorf("claim check: %w", err)
			}
			k.Payload = append([]byte{elsewhere}, name...)
			return k, nil
		},
		Decode: func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
			kind, rest := byte(0), k.Payload
			if len(rest) > 0 {
				kind, rest = rest[0], rest[1:]
			}
			switch kind {
			case inRow:
				k.Payload = bytes.Clone(rest)
				return k, nil
			case elsewhere:
				content, err := to.Get(ctx, string(rest))
				if err != nil {
					return k, fmt.Errorf("claim check: %w", err)
				}
				if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != string(rest) {
					return k, fmt.Errorf("claim check: %s has other content", rest)
				}
				k.Payload = content
				return k, nil
			}
			return k, errors.New("claim check: no claim check has written it")
		},
	}
}

// directory keeps objects in files, such as of a mounted share.
type directory string

func (d directory) Put(_ context.Context, name string, content []byte) error {
	f, err := os.CreateTemp(string(d), "new-*") // half a file never has the name
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(string(d), name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	at, err := os.Open(string(d)) // the name is to outlast a crash, too
	if err != nil {
		return err
	}
	return errors.Join(at.Sync(), at.Close())
}

func (d directory) Get(_ context.Context, name string) ([]byte, error) {
	if !fs.ValidPath(name) || filepath.Base(name) != name {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(filepath.Join(string(d), name))
}

// A claim check: what is kept of a large message that has failed is a reference. The object
// stays where it is; let it expire there, later than retention.failed.
func ExampleCodec() {
	dir, err := os.MkdirTemp("", "objects")
	check(err)
	defer os.RemoveAll(dir)
	codec := claimCheck(directory(dir), 16)
	config := middleware.InboxConfig{Service: "shop", Keep: middleware.KeepConfig{Codec: codec}}

	ctx := context.Background()
	for _, payload := range []string{"small", "an invoice with many lines"} {
		kept, err := config.Keep.Codec.Encode(ctx, middleware.Kept{Payload: []byte(payload)})
		check(err)
		restored, err := config.Keep.Codec.Decode(ctx, kept)
		check(err)
		fmt.Printf("%.9s… %s\n", kept.Payload, restored.Payload)
	}
	// Output:
	// rsmall… small
	// ea25da438… an invoice with many lines
}
