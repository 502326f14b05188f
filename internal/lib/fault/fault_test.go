package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestChain(t *testing.T) {
	t.Parallel()
	inner := New(NotFound, "look elsewhere", "find thing %q", "x")
	outer := Wrap(fmt.Errorf("between: %w", inner), Unavailable, "", "open room")
	for name, tt := range map[string]struct {
		err        error
		kind       Kind
		text, next string
	}{
		"nil":                        {nil, "", "", ""},
		"foreign":                    {io.EOF, Internal, "EOF", ""},
		"plain":                      {inner, NotFound, `find thing "x"`, "look elsewhere"},
		"outer kind, inner step":     {outer, Unavailable, `open room: between: find thing "x"`, "look elsewhere"},
		"foreign around a fault":     {fmt.Errorf("top: %w", inner), NotFound, `top: find thing "x"`, "look elsewhere"},
		"the outermost step is used": {Wrap(inner, Denied, "ask", "no"), Denied, `no: find thing "x"`, "ask"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := KindOf(tt.err); got != tt.kind {
				t.Errorf("kind %q, want %q", got, tt.kind)
			}
			if got := NextOf(tt.err); got != tt.next {
				t.Errorf("next %q, want %q", got, tt.next)
			}
			if tt.err != nil && tt.err.Error() != tt.text {
				t.Errorf("text %q, want %q", tt.err, tt.text)
			}
		})
	}
	if !errors.Is(Wrap(io.EOF, Internal, "", "read"), io.EOF) {
		t.Error("the cause is not in the chain")
	}
}

// TestExitCodes: one code for each kind, none of them 0, and codes that don't
// collide. docs/spec/exit-codes.md is compared with them in cli/manual.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	seen := map[int]Kind{}
	for _, k := range []Kind{Usage, Denied, NotFound, Unavailable, Limit, Timeout, Cancelled, Conflict, Corrupt, Malformed, Internal} {
		c := k.ExitCode()
		if c == 0 || seen[c] != "" {
			t.Errorf("%s has code %d, which %q has too", k, c, seen[c])
		}
		seen[c] = k
	}
	if Kind("").ExitCode() != 0 || Kind("unheard of").ExitCode() != 1 {
		t.Error("no error is not 0, or an unknown kind is not 1")
	}
}
