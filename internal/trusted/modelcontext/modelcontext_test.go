package modelcontext

import (
	"encoding/json"
	"testing"

	"agentos/internal/lib/chat"
)

func TestSameInputSameHash(t *testing.T) {
	r := chat.Request{Model: "m", MaxOutputTokens: 5, Messages: []chat.Message{{Role: chat.User, Text: "é"}},
		Tools: []chat.Tool{{Name: "t", Schema: json.RawMessage(`{"b":1, "a":2}`)}}}
	a, err := Build(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Stream = true
	r.Tools[0].Schema = json.RawMessage(`{"a":2,"b":1}`)
	if b, _ := Build(r); b.Hash != a.Hash {
		t.Error("member order or transport changed the hash")
	}
	r.Messages[0].Text = "e"
	if b, _ := Build(r); b.Hash == a.Hash {
		t.Error("another message, same hash")
	}
}

func TestTokenBoundIsAbovePlainCounts(t *testing.T) {
	for _, s := range []string{"", "a", "The quick brown fox jumps over the lazy dog."} {
		if got, atLeast := TokenBound(len(s)), int64(len(s)/4); got < atLeast+1 {
			t.Errorf("%q: %d", s, got)
		}
	}
}
