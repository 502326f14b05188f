// Package secret holds values that must never be rendered: keys and tokens.
// Every way in which Go prints, encodes or logs a value shows "[redacted]"
// instead; only Reveal gives the value back, so that one word finds every use.
//
// State owned: none. Imports: standard library. Imported by: whoever carries a
// credential. Invariants: no rendering of a Value depends on what it holds,
// except whether it holds anything. Tests: secret_test.go renders a canary in
// every way and searches for it.
package secret

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is what every rendering of a set Value shows.
const Redacted = "[redacted]"

// Value is a secret string. The zero value is an unset secret.
type Value struct {
	// p keeps the text behind a pointer, so that a printer that walks fields by
	// reflection sees an address.
	p *string
}

// New wraps s; the empty string is an unset secret.
func New(s string) Value {
	if s == "" {
		return Value{}
	}
	return Value{p: &s}
}

// Reveal returns the secret itself. Callers pass it on to the one place that
// needs it and keep no copy.
func (v Value) Reveal() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// IsSet reports whether there is a secret.
func (v Value) IsSet() bool { return v.p != nil }

// String is Redacted, or empty when unset.
func (v Value) String() string {
	if v.p == nil {
		return ""
	}
	return Redacted
}

// GoString is String.
func (v Value) GoString() string { return v.String() }

// Format renders String for every verb and flag.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, v.String()) }

// MarshalJSON encodes String.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// MarshalText encodes String.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// LogValue logs String.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }
