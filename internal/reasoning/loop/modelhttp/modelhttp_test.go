package modelhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
	"agentos/internal/reasoning/loop"
)

// one is a listener with one connection.
type one struct {
	c    chan net.Conn
	done chan struct{}
}

func (o *one) Accept() (net.Conn, error) {
	select {
	case c := <-o.c:
		return c, nil
	case <-o.done:
		return nil, io.EOF
	}
}
func (o *one) Close() error   { return nil }
func (o *one) Addr() net.Addr { return &net.UnixAddr{} }

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	l := &one{c: make(chan net.Conn, 1), done: make(chan struct{})}
	l.c <- theirs
	srv := &http.Server{Handler: h}
	end := make(chan struct{})
	go func() { defer close(end); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = ours.Close(); close(l.done); _ = srv.Close(); <-end })
	return New(ours)
}

var request = chat.Request{Messages: []chat.Message{{Role: chat.User, Text: "hi"}}, MaxOutputTokens: 10}

func answer(s string) chat.Response {
	return chat.Response{
		ID: "r", Model: "m", Message: chat.Message{Role: chat.Assistant, Text: s},
		Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 3, OutputTokens: 2},
	}
}

// Whole and streamed answers, many turns on the one connection.
func TestTurns(t *testing.T) {
	t.Parallel()
	n := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		req, err := completions.DecodeRequest(body)
		if err != nil || r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost {
			http.Error(w, fmt.Sprint(err), 400)
			return
		}
		n++
		resp := answer(fmt.Sprint("answer ", n))
		if !req.Stream {
			b, _ := completions.EncodeResponse(resp, 0)
			_, _ = w.Write(b)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		sw := completions.NewStreamWriter(w, "r", "m", 0, true)
		_ = sw.Text(resp.Message.Text)
		_ = sw.Finish(resp)
	})
	for i := 1; i <= 6; i++ {
		req := request
		req.Stream = i%2 == 0
		got, err := c.Generate(t.Context(), req)
		if err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		if diff := cmp.Diff(answer(fmt.Sprint("answer ", i)), got); diff != "" {
			t.Errorf("turn %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	body := func(code string) string {
		return string(completions.EncodeError(completions.ServerError{Message: "why", Code: code}))
	}
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		want string // code
	}{
		"reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			_, _ = io.WriteString(w, body("not_understood"))
		}, "not_understood"},
		"budget": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			_, _ = io.WriteString(w, body("budget_tokens"))
		}, "budget_tokens"},
		"no body": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, ""},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, ""},
		"context": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"no","n_prompt_tokens":9,"n_ctx":4}}`)
		}, "context_exceeded"},
		"not the protocol": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":7}`) }, "malformed"},
		"too large": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"x":"`+strings.Repeat("a", chat.MaxResponseBytes)+`"}`)
		}, "too_large"},
		"endless stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := io.WriteString(w, `data: {"choices":[{"delta":{"content":""}}]}`+"\n\n"); err != nil {
					return
				}
			}
		}, "too_large"},
		"stream ends early": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n")
		}, "truncated"},
		"error in the stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+body("malformed")+"\n\n")
		}, "malformed"},
		"hangs up": {func(w http.ResponseWriter, _ *http.Request) {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = c.Close()
			}
		}, "unavailable"},
		"long header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("a", 2*maxHeader)) }, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, tt.h).Generate(t.Context(), request)
			var e *loop.ModelError
			if !errors.As(err, &e) || e.Code != tt.want || len(e.Msg) > 600 {
				t.Errorf("got %#v (%v), want code %q", e, err, tt.want)
			}
		})
	}
}

// Once the connection is lost, no turn can find another.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": "x"}, "finish_reason": "stop"}}})
	})
	if _, err := c.Generate(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Generate(t.Context(), request); !strings.Contains(fmt.Sprint(err), errLost.Error()) {
		t.Errorf("second turn: %v", err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(started)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := c.Generate(ctx, request); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
