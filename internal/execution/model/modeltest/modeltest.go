// Package modeltest is the conformance suite of model backends, and a scripted
// Chat Completions server that shows each fault that real servers showed.
//
// State owned: a server's turns and what it was asked. Imports: execution/model,
// lib/chat, lib/chat/completions. Imported by: tests of the backends,
// integration/modelserver. Never linked into a shipped binary. Locks: Server.mu,
// a leaf. Format of scripts: docs/spec/replay.md. Tests: server_test.go; the
// suite is itself tested by model/socket and model/replay, which run it.
package modeltest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
)

// Harness says how to make the backend under test answer by a script.
type Harness struct {
	// New returns a backend whose calls are answered by turns, one each. Its own
	// timeout is a minute, its idle timeout 500 ms.
	New func(t *testing.T, turns ...Turn) model.Backend
	// Faults that this backend can meet; others are not tried.
	Faults []Fault
}

func request(stream bool) chat.Request {
	return chat.Request{
		Model: "m", MaxOutputTokens: 64, Stream: stream,
		Messages: []chat.Message{{Role: chat.User, Text: "go"}},
		Tools:    []chat.Tool{{Name: "t", Schema: []byte(`{"type":"object"}`)}},
	}
}

func say(text string, calls ...chat.ToolCall) chat.Response {
	r := chat.Response{
		ID: "r1", Model: "m", Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 3, OutputTokens: 4},
		Message: chat.Message{Role: chat.Assistant, Text: text, ToolCalls: calls},
	}
	if len(calls) > 0 {
		r.Stop = chat.StopToolCalls
	}
	return r
}

// Run holds a backend to the contract of model.Backend, streamed and not.
func Run(t *testing.T, h Harness) {
	t.Helper()
	one := chat.ToolCall{ID: "c1", Name: "t", Arguments: `{"unit": "a b <|x|> \n"}`}
	two := chat.ToolCall{ID: "c2", Name: "t", Arguments: "not json"}
	answers := map[string]chat.Response{
		"text":           say("hello, wörld\nsecond line"),
		"one call":       say("", one),
		"several calls":  say("let me see", one, two),
		"length":         {Message: chat.Message{Role: chat.Assistant, Text: "cut o"}, Stop: chat.StopLength, Usage: chat.Usage{InputTokens: 1, OutputTokens: 2}},
		"refused":        {Message: chat.Message{Role: chat.Assistant, Text: "no"}, Stop: chat.StopRefused, Usage: chat.Usage{InputTokens: 1, OutputTokens: 2}},
		"empty":          {Message: chat.Message{Role: chat.Assistant}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 1}},
		"long arguments": say("", chat.ToolCall{ID: "c", Name: "t", Arguments: `{"a":"` + strings.Repeat("x", 100<<10) + `"}`}),
	}
	for name, want := range answers {
		both(t, name, func(t *testing.T, stream bool) {
			b := h.New(t, Turn{Response: &want})
			got, text, err := generate(t.Context(), b, stream)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if stream && text != got.Message.Text || !stream && text != "" {
				t.Errorf("deltas %q of text %q", text, got.Message.Text)
			}
		})
	}
	both(t, "turns in order", func(t *testing.T, stream bool) {
		first, second := say("", one), say("done")
		b := h.New(t, Turn{Response: &first}, Turn{Response: &second})
		for _, want := range []chat.Response{first, second} {
			if got, _, err := generate(t.Context(), b, stream); err != nil || !cmp.Equal(want, got) {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		}
	})
	both(t, "cancelled before", func(t *testing.T, stream bool) {
		r := say("x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := generate(ctx, h.New(t, Turn{Response: &r}), stream); model.ReasonOf(err) != model.ReasonCancelled {
			t.Errorf("error %v, want cancelled", err)
		}
	})
	for _, f := range h.Faults {
		both(t, string(f), func(t *testing.T, stream bool) { runFault(t, h, f, stream) })
	}
}

func both(t *testing.T, name string, f func(t *testing.T, stream bool)) {
	t.Helper()
	t.Run(name+"/whole", func(t *testing.T) { t.Parallel(); f(t, false) })
	t.Run(name+"/stream", func(t *testing.T) { t.Parallel(); f(t, true) })
}

func generate(ctx context.Context, b model.Backend, stream bool) (chat.Response, string, error) {
	var text strings.Builder
	r, err := b.Generate(ctx, request(stream), func(s string) { text.WriteString(s) })
	return r, text.String(), err
}

// runFault checks the reason, and where the clock ends the call, that it ended
// within a second of when it had to.
func runFault(t *testing.T, h Harness, f Fault, stream bool) {
	b := h.New(t, Turn{Fault: f})
	ctx, must := t.Context(), time.Duration(0)
	switch f {
	case Silent, Stall:
		if f == Silent || !stream { // a stalled stream ends by the idle timeout
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
		}
		must = 1200 * time.Millisecond
	}
	start := time.Now()
	got, text, err := generate(ctx, b, stream)
	if took := time.Since(start); must > 0 && took > must {
		t.Errorf("took %v, limit %v", took, must)
	}
	judge(t, f, stream, got, text, err)
}

// Fails asks b, which is about to show f, once, and checks what comes of it.
func Fails(t *testing.T, b model.Backend, f Fault, stream bool) {
	t.Helper()
	t.Run(string(f), func(t *testing.T) {
		t.Parallel()
		got, text, err := generate(t.Context(), b, stream)
		judge(t, f, stream, got, text, err)
	})
}

func judge(t *testing.T, f Fault, stream bool, got chat.Response, text string, err error) {
	t.Helper()
	want := faults[f].whole
	if stream {
		want = faults[f].stream
	}
	if model.ReasonOf(err) != want {
		t.Fatalf("error %v, want reason %q", err, want)
	}
	if err != nil {
		checkError(t, err)
		return
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	if stream && text != got.Message.Text {
		t.Errorf("deltas %q of text %q", text, got.Message.Text)
	}
	if d := cmp.Diff(faults[f].want, got.Message); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !got.Usage.Estimated && f == Bare {
		t.Errorf("usage %+v, want it estimated", got.Usage)
	}
}

func checkError(t *testing.T, err error) {
	t.Helper()
	s := err.Error()
	if len(s) > 512+64 {
		t.Errorf("error of %d bytes", len(s))
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			t.Errorf("control character %U in %q", r, s)
		}
	}
	if strings.Contains(s, canary) {
		t.Errorf("a header's secret in %q", s)
	}
}

// Cancelled checks that a call under way ends within a second of being
// cancelled, as a cancellation. The backend must meet Silent.
func Cancelled(t *testing.T, h Harness) {
	t.Helper()
	both(t, "cancelled during", func(t *testing.T, stream bool) {
		b := h.New(t, Turn{Fault: Silent})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var at time.Time
		timer := time.AfterFunc(150*time.Millisecond, func() { at = time.Now(); cancel() })
		defer timer.Stop()
		_, _, err := generate(ctx, b, stream)
		if model.ReasonOf(err) != model.ReasonCancelled {
			t.Fatalf("error %v, want cancelled", err)
		}
		if took := time.Since(at); took > time.Second {
			t.Errorf("ended %v after it was cancelled", took)
		}
	})
}
