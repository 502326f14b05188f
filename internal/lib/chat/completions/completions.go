// Package completions is the codec of the OpenAI Chat Completions wire, both
// directions, whole and streamed, from and to the types of lib/chat.
//
// State owned: none; pure apart from the reader or writer it is given. Imports:
// lib/chat, go-json-experiment/json. Imported by: the loop (client), the shim
// (server), execution/model (client and scripted server). Invariants: bytes are
// bounded, depth-limited and checked for UTF-8 and duplicate names before they
// mean anything; a request field outside the allow list is refused by name; no
// token count from a server can lower a budget (negative or absent counts are
// estimated).
// Format: docs/spec/chat-completions.md. Tests: *_test.go, Fuzz*. Spec: OSA-04.
package completions

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/chat"
)

// MaxDepth is how deeply a document may nest, in objects and arrays.
const MaxDepth = 64

// Kind classifies a codec error.
type Kind string

// The closed set.
const (
	Malformed Kind = "malformed"        // not the protocol
	TooLarge  Kind = "too_large"        // more bytes, text, calls or depth than the limits
	Truncated Kind = "truncated"        // a stream ended before its end marker
	Refused   Kind = "refused"          // a request field or value outside the allow list
	Server    Kind = "server_error"     // the server reported an error inside a 200
	Context   Kind = "context_exceeded" // the server said that the prompt doesn't fit
	Read      Kind = "read"             // the transport failed; Err says how
)

// Error is a codec error. Msg is one line, bounded, without control characters.
type Error struct {
	Kind  Kind
	Field string // JSON pointer of the offending request field, where there is one
	Msg   string
	Code  string      // the code of the server's error body, of kinds Server and Context
	Usage *chat.Usage // what the server had reported before it failed
	Err   error
}

// Error renders the message, after the field if there is one.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Msg
	}
	return e.Msg
}

// Unwrap returns the inner cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind in err's chain, or "".
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

const maxMsg = 512 // bytes of foreign text in a message

func fail(k Kind, field, format string, args ...any) *Error {
	return &Error{Kind: k, Field: chat.Clean(field, maxMsg), Msg: chat.Clean(fmt.Sprintf(format, args...), maxMsg)}
}

// scan walks the tokens once: exactly one document, depth, duplicate names and
// UTF-8 (the last two by the decoder).
func scan(doc []byte, limit int) error {
	if len(doc) > limit {
		return fail(TooLarge, "", "body has %d bytes, limit %d", len(doc), limit)
	}
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	for values := 0; ; {
		_, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && values == 1:
			return nil
		case errors.Is(err, io.EOF):
			return fail(Malformed, "", "body has %d JSON documents, want 1", values)
		case err != nil:
			return fail(Malformed, "", "parse json: %v", err)
		case d.StackDepth() > MaxDepth:
			return fail(TooLarge, "", "json nested deeper than %d levels", MaxDepth)
		case d.StackDepth() == 0:
			values++
		}
	}
}

// object splits v, which scan has passed, into its members; null members are
// absent ones.
func object(field string, v jsontext.Value) (map[string]jsontext.Value, error) {
	if v.Kind() != '{' {
		return nil, fail(Malformed, field, "want an object")
	}
	m := map[string]jsontext.Value{}
	if err := json.Unmarshal(v, &m); err != nil {
		return nil, fail(Malformed, field, "parse json: %v", err)
	}
	for k, e := range m {
		if e.Kind() == 'n' {
			delete(m, k)
		}
	}
	return m, nil
}

func array(field string, v jsontext.Value) ([]jsontext.Value, error) {
	if v.Kind() != '[' {
		return nil, fail(Malformed, field, "want an array")
	}
	var a []jsontext.Value
	if err := json.Unmarshal(v, &a); err != nil {
		return nil, fail(Malformed, field, "parse json: %v", err)
	}
	return a, nil
}

// scalar decodes v into a string, bool or number.
func scalar[T any](field string, v jsontext.Value) (T, error) {
	var t T
	if err := json.Unmarshal(v, &t); err != nil {
		return t, fail(Malformed, field, "want a %T", t)
	}
	return t, nil
}
