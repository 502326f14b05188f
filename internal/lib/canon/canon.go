// Package canon is the canonical form of JSON (RFC 8785) over I-JSON input
// (RFC 7493), with limits applied before and while parsing.
//
// State owned: none. Imports: go-json-experiment/json/jsontext. Imported by:
// trusted rooms and whoever hashes JSON. Invariants: Canonical(Canonical(x)) ==
// Canonical(x); two inputs have equal canonical bytes only if they are the same
// JSON value; duplicate names, invalid UTF-8 and integers that a float64 can't
// hold are errors, never silently changed.
// Tests: canon_test.go (the vectors of the RFC), FuzzCanonical.
package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of one document.
const (
	MaxBytes = 8 << 20 // bytes
	MaxDepth = 64      // nested objects and arrays
)

// Errors that callers distinguish.
var (
	ErrTooLarge  = errors.New("json document too large")
	ErrTooDeep   = errors.New("json document nested too deeply")
	ErrNotObject = errors.New("json document is not an object")
	ErrNumber    = errors.New("json number not representable without loss")
)

// Canonical returns the RFC 8785 form of one JSON document.
func Canonical(doc []byte) ([]byte, error) {
	if len(doc) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(doc), MaxBytes)
	}
	if err := scan(doc); err != nil {
		return nil, err
	}
	v := jsontext.Value(bytes.Clone(doc))
	if err := v.Canonicalize(); err != nil {
		return nil, fmt.Errorf("canonicalize json: %w", err)
	}
	return v, nil
}

// Object is Canonical for a document that must be an object.
func Object(doc []byte) ([]byte, error) {
	c, err := Canonical(doc)
	if err != nil {
		return nil, err
	}
	if len(c) == 0 || c[0] != '{' {
		return nil, ErrNotObject
	}
	return c, nil
}

// Marshal encodes a Go value canonically.
func Marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode json: %w", err)
	}
	return Canonical(b)
}

// Digest is "sha256:" and the hex SHA-256 of b.
func Digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

// scan walks the tokens once: depth, duplicate names, UTF-8 (by the decoder)
// and numbers that would change when they go through a float64.
func scan(doc []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	values := 0
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			if values == 0 {
				return fmt.Errorf("parse json: %w", io.ErrUnexpectedEOF)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("parse json: %w", err)
		}
		if d.StackDepth() > MaxDepth {
			return fmt.Errorf("%w: limit %d levels", ErrTooDeep, MaxDepth)
		}
		if t.Kind() == '0' {
			if err := number(t.String()); err != nil {
				return err
			}
		}
		if d.StackDepth() == 0 {
			if values++; values > 1 {
				return errors.New("parse json: more than one document")
			}
		}
	}
}

// number refuses integers outside ±(2^53-1) and values that overflow (RFC 7493
// section 2.2): two different inputs must not become one canonical value.
func number(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("%w: %.40s", ErrNumber, s)
	}
	if f == math.Trunc(f) && math.Abs(f) > 1<<53-1 {
		return fmt.Errorf("%w: %.40s", ErrNumber, s)
	}
	return nil
}
