package call

import (
	"errors"
	"testing"
	"time"

	"agentos/internal/lib/canon"
)

func make1(t *testing.T, a Action, resource, args string) Call {
	t.Helper()
	c, err := New("call-1", Subject{Owner: 1, Agent: "a", Run: "r"}, a, resource, []byte(args), time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDigest: the digest is a function of action, resource and what the
// arguments mean, and of nothing else (INV-07 builds on it).
func TestDigest(t *testing.T) {
	t.Parallel()
	base := make1(t, ToolCall, "deploy", `{"env":"staging","n":1}`)
	if string(base.Args) != `{"env":"staging","n":1}` {
		t.Errorf("args %s", base.Args)
	}
	for name, same := range map[string]string{
		"order": `{"n":1,"env":"staging"}`, "white space": " {\n\"env\" : \"staging\", \"n\":1 }",
		"escapes": `{"env":"\u0073taging","n":1}`, "number": `{"env":"staging","n":1.0e0}`,
	} {
		if c := make1(t, ToolCall, "deploy", same); c.Digest != base.Digest || string(c.Args) != string(base.Args) {
			t.Errorf("%s: another digest or other bytes: %s", name, c.Args)
		}
	}
	for name, c := range map[string]Call{
		"value":        make1(t, ToolCall, "deploy", `{"env":"prod","n":1}`),
		"type":         make1(t, ToolCall, "deploy", `{"env":"staging","n":"1"}`),
		"more":         make1(t, ToolCall, "deploy", `{"env":"staging","n":1,"x":null}`),
		"action":       make1(t, ModelGenerate, "deploy", `{"env":"staging","n":1}`),
		"resource":     make1(t, ToolCall, "deploy2", `{"env":"staging","n":1}`),
		"line end":     make1(t, ToolCall, "deploy\n", `{"env":"staging","n":1}`),
		"escaped line": make1(t, ToolCall, `deploy\n`, `{"env":"staging","n":1}`),
	} {
		if c.Digest == base.Digest {
			t.Errorf("%s: the same digest", name)
		}
	}
	if a, b := make1(t, ToolCall, "x\n", ""), make1(t, ToolCall, `x\n`, ""); a.Digest == b.Digest {
		t.Error("a line end and its escape have one digest")
	}
}

// TestFieldsDoNotShift: a resource that holds what looks like arguments is not
// taken for another call.
func TestFieldsDoNotShift(t *testing.T) {
	t.Parallel()
	if a, b := make1(t, ToolCall, "x\n{}", ""), make1(t, ToolCall, "x", ""); a.Digest == b.Digest {
		t.Error("the digest's fields shifted")
	}
	if a, b := make1(t, ToolCall+"\nx", "y", ""), make1(t, ToolCall, "x\ny", ""); a.Digest == b.Digest {
		t.Error("an action with a line end took the resource's place")
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	c, err := New("call-1", Subject{}, ToolCall, "t", nil, at)
	if err != nil || string(c.Args) != "{}" || c.At.Location() != time.UTC || !c.At.Equal(at) {
		t.Errorf("%+v, %v", c, err)
	}
	for name, tt := range map[string]struct {
		args string
		want error
	}{"array": {"[]", canon.ErrNotObject}, "number": {`{"n":1e400}`, canon.ErrNumber}, "duplicate": {`{"a":1,"a":2}`, nil}, "not JSON": {"{", nil}} {
		if _, err := New("call-1", Subject{}, ToolCall, "t", []byte(tt.args), at); err == nil || (tt.want != nil && !errors.Is(err, tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
