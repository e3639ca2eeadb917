package stores

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
)

// FingerprintAlgorithm says how a fingerprint was made. It is stored with the digest, so that
// only comparable digests are compared.
type FingerprintAlgorithm uint8

const (
	FingerprintOff    FingerprintAlgorithm = 0 // no fingerprint was taken
	FingerprintSHA256 FingerprintAlgorithm = 1 // SHA-256 (FIPS 180-4)
	FingerprintHMAC   FingerprintAlgorithm = 2 // HMAC-SHA-256 (RFC 2104) under the key KeyID

	// FingerprintHeaders is SHA-512/256 (FIPS 180-4) of headers and payload. It is another
	// function than FingerprintSHA256, so that no payload alone has the digest of headers and
	// another payload.
	FingerprintHeaders FingerprintAlgorithm = 3
)

// Fingerprint is a digest of a message's payload and stable headers. The zero value means that
// none was taken.
type Fingerprint struct {
	Algorithm FingerprintAlgorithm
	KeyID     uint8 // which HMAC key; 0 without one
	Digest    [sha256.Size]byte
}

// Comparison is the relation of two fingerprints of messages with one key.
type Comparison uint8

const (
	Incomparable Comparison = iota // another algorithm, another key, or no fingerprint
	Same
	Different
)

// Compare compares two fingerprints in constant time.
func (f Fingerprint) Compare(other Fingerprint) Comparison {
	switch {
	case f.Algorithm == FingerprintOff, f.KeyID != other.KeyID:
		return Incomparable
	case f.Algorithm != other.Algorithm:
		if f.unkeyed() && other.unkeyed() {
			return Different // only one of them has headers
		}
		return Incomparable
	}
	if subtle.ConstantTimeCompare(f.Digest[:], other.Digest[:]) == 1 {
		return Same
	}
	return Different
}

func (f Fingerprint) unkeyed() bool {
	return f.Algorithm == FingerprintSHA256 || f.Algorithm == FingerprintHeaders
}

// fingerprintBytes is the length of the stored form: algorithm, key id, digest.
const fingerprintBytes = 2 + sha256.Size

// Bytes returns the stored form, nil for the zero value.
func (f Fingerprint) Bytes() []byte {
	if f.Algorithm == FingerprintOff {
		return nil
	}
	b := make([]byte, 0, fingerprintBytes)
	b = append(b, byte(f.Algorithm), f.KeyID)
	return append(b, f.Digest[:]...)
}

// ErrFingerprint is returned by [ParseFingerprint] for bytes of a wrong length.
var ErrFingerprint = errors.New("stores: not a stored fingerprint")

// ParseFingerprint reads the stored form; empty input gives the zero value.
func ParseFingerprint(b []byte) (Fingerprint, error) {
	var f Fingerprint
	if len(b) == 0 {
		return f, nil
	}
	if len(b) != fingerprintBytes {
		return f, ErrFingerprint
	}
	f.Algorithm, f.KeyID = FingerprintAlgorithm(b[0]), b[1]
	copy(f.Digest[:], b[2:])
	return f, nil
}

// FingerprintKey keys fingerprints, so that a reader of the table cannot guess short
// payloads from their digests. The zero value means plain SHA-256. Its secret is never
// printed, not even as a field of another struct.
type FingerprintKey struct {
	id     uint8
	secret func() []byte // a function, so that reflection cannot print it
}

// NewFingerprintKey returns a key. Its number id is stored with each fingerprint; a rotated
// key needs another number. The secret is copied. Without a secret it returns the zero
// value.
func NewFingerprintKey(id uint8, secret []byte) FingerprintKey {
	if len(secret) == 0 {
		return FingerprintKey{}
	}
	kept := bytes.Clone(secret)
	return FingerprintKey{id: id, secret: func() []byte { return kept }}
}

// String returns the number of the key.
func (k FingerprintKey) String() string {
	if k.secret == nil {
		return "no key"
	}
	return "key " + strconv.Itoa(int(k.id))
}

// Format implements fmt.Formatter: every verb prints what String returns.
func (k FingerprintKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// Header is one stable header of a message, part of its fingerprint.
type Header struct{ Name, Value string }

// NewFingerprint digests payload and headers, in the order given.
//
// With neither key nor headers the digest is the plain SHA-256 of the payload.
// Otherwise the number of headers and the length of each name and value are digested
// too, so that no message has the digest of one whose headers are part of its payload.
func NewFingerprint(key FingerprintKey, payload []byte, headers ...Header) Fingerprint {
	if key.secret == nil && len(headers) == 0 {
		return Fingerprint{Algorithm: FingerprintSHA256, Digest: sha256.Sum256(payload)}
	}
	var f Fingerprint
	var h hash.Hash
	if key.secret != nil {
		f.Algorithm, f.KeyID = FingerprintHMAC, key.id
		h = hmac.New(sha256.New, key.secret())
	} else {
		f.Algorithm = FingerprintHeaders
		h = sha512.New512_256()
	}
	// Headers first and payload last: the payload needs no length of its own.
	var length [8]byte
	count := func(n uint64) {
		binary.BigEndian.PutUint64(length[:], n)
		h.Write(length[:])
	}
	write := func(s string) {
		count(uint64(len(s)))
		h.Write([]byte(s))
	}
	count(uint64(len(headers)))
	for _, header := range headers {
		write(header.Name)
		write(header.Value)
	}
	h.Write(payload)
	h.Sum(f.Digest[:0])
	return f
}
