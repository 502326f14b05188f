// Package modelcontext is the context of a model call: what the model gets to
// see, as canonical bytes with one hash, and how many tokens that can be.
//
// State owned: none. Imports: lib/canon, lib/chat. Imported by: the shim (which
// builds it), gate records (which keep the hash). Invariant: INV-06: the same
// messages, tools and limits give the same bytes and the same hash.
// Tests: modelcontext_test.go.
package modelcontext

import (
	"fmt"

	"agentos/internal/lib/canon"
	"agentos/internal/lib/chat"
)

// Context is one model call's input.
type Context struct {
	Bytes []byte // canonical JSON of the request, without transport options
	Hash  string // "sha256:…" of Bytes
}

// Build makes the context of r. The stream flag is transport and left out.
func Build(r chat.Request) (Context, error) {
	r.Stream = false
	b, err := canon.Marshal(struct {
		V string `json:"v"`
		chat.Request
	}{chat.Version, r})
	if err != nil {
		return Context{}, fmt.Errorf("build model context: %w", err)
	}
	return Context{Bytes: b, Hash: canon.Digest(b)}, nil
}

// TokenBound is an upper estimate of the tokens in a context of that many bytes: one for every two bytes.
// Byte-level vocabularies need about one for four bytes of prose and one for
// two and a half of dense JSON; a provider that counts more is debited more
// when the call is settled (INV-03).
func TokenBound(bytes int) int64 { return (int64(bytes)+1)/2 + 16 }
