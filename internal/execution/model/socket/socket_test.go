package socket

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentos/internal/execution/model"
	"agentos/internal/execution/model/modeltest"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/fault"
)

// dialer connects to a path and counts.
type dialer struct {
	path string
	n    atomic.Int32
}

func (d *dialer) Dial(ctx context.Context) (net.Conn, error) {
	d.n.Add(1)
	return (&net.Dialer{}).DialContext(ctx, "unix", d.path)
}

func start(t *testing.T, cfg Config, s modeltest.Script) (*Backend, *modeltest.Server, *dialer) {
	srv, path := modeltest.Start(t, s)
	d := &dialer{path: path}
	return New(cfg, Deps{d}), srv, d
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"as asked": {}, "always streamed": {Stream: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.IdleTimeout, cfg.Timeout = 500*time.Millisecond, time.Minute
			h := modeltest.Harness{New: func(t *testing.T, turns ...modeltest.Turn) model.Backend {
				b, _, _ := start(t, cfg, modeltest.Script{Turns: turns})
				return b
			}}
			if !cfg.Stream { // what a fault leads to depends on the mode
				h.Faults = append(append(modeltest.BodyFaults(), modeltest.StatusFaults()...), modeltest.ConnectionFaults()...)
			}
			modeltest.Run(t, h)
			modeltest.Cancelled(t, h)
		})
	}
}

func ask() chat.Request {
	return chat.Request{Model: "asked", MaxOutputTokens: 9, Messages: []chat.Message{{Role: chat.User, Text: "go"}}}
}

// A failure is never tried again: one call, one connection, one request.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	for _, f := range []modeltest.Fault{modeltest.Close, modeltest.Cut, modeltest.Busy, modeltest.Loading, modeltest.Redirect, modeltest.ErrorEvent} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b, srv, d := start(t, Config{}, modeltest.Script{Turns: []modeltest.Turn{{Fault: f}}, Repeat: true})
			if _, err := b.Generate(t.Context(), ask(), nil); err == nil {
				t.Error("no error")
			}
			if n, asked := d.n.Load(), len(srv.Requests()); n != 1 || asked != 1 {
				t.Errorf("%d connections, %d requests; want one", n, asked)
			}
		})
	}
}

func TestModelName(t *testing.T) {
	t.Parallel()
	answer := chat.Response{Message: chat.Message{Role: chat.Assistant, Text: "x"}, Stop: chat.StopEnd}
	for cfg, want := range map[string]string{"": "asked", "mine": "mine"} {
		b, srv, _ := start(t, Config{Model: cfg}, modeltest.Script{Turns: []modeltest.Turn{{Response: &answer}}})
		if _, err := b.Generate(t.Context(), ask(), nil); err != nil {
			t.Fatal(err)
		}
		if got := srv.Requests()[0].Model; got != want {
			t.Errorf("asked for model %q, want %q", got, want)
		}
	}
}

func TestErrorsHelp(t *testing.T) {
	t.Parallel()
	tests := map[modeltest.Fault][2]string{
		modeltest.ContextStatus: {"the prompt has 5001 tokens, the model's context 4096", "larger context"},
		modeltest.Busy:          {"status 429: slow down", "try again in 7 s"},
		modeltest.Loading:       {"Loading model", "wait until"},
		modeltest.Unauthorized:  {"invalid key", "without"},
		modeltest.Redirect:      {"status 302", "not followed"},
		modeltest.BadGateway:    {"status 502: <html> [2J gateway", "log"},
	}
	for f, want := range tests {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			b, _, _ := start(t, Config{}, modeltest.Script{Turns: []modeltest.Turn{{Fault: f}}})
			_, err := b.Generate(t.Context(), ask(), nil)
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			if !strings.Contains(e.Msg, want[0]) || !strings.Contains(e.Next, want[1]) || len(e.Msg) > 512 {
				t.Errorf("%q, next %q; want %q, next %q", e.Msg, e.Next, want[0], want[1])
			}
		})
	}
}

// The idle timer runs only while the server is waited for: a slow sink is not
// the server's idleness.
func TestIdleTimer(t *testing.T) {
	t.Parallel()
	fired := make(chan struct{})
	idle := time.AfterFunc(time.Hour, func() { close(fired) })
	w := &watched{strings.NewReader("abc"), idle, time.Hour}
	if _, err := w.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if idle.Stop() {
		t.Error("the timer runs between reads")
	}
	r, server := net.Pipe()
	defer server.Close()
	idle = time.AfterFunc(time.Hour, func() { close(fired); _ = r.Close() })
	if _, err := (&watched{r, idle, time.Millisecond}).Read(make([]byte, 2)); err == nil {
		t.Error("read something")
	}
	<-fired
}

type failing struct{ err error }

func (f failing) Dial(context.Context) (net.Conn, error) { return nil, f.err }

type hanging struct{}

func (hanging) Dial(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }

// mute accepts and never reads.
type mute struct{ t *testing.T }

func (m mute) Dial(context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	m.t.Cleanup(func() { _ = b.Close() })
	return a, nil
}

func TestDial(t *testing.T) {
	t.Parallel()
	b := New(Config{}, Deps{failing{fault.New(fault.Denied, "chown root: /x", "socket /x is not root's")}})
	_, err := b.Generate(t.Context(), ask(), nil)
	var e *model.Error
	if !errors.As(err, &e) || e.Reason != model.ReasonUnavailable || e.Next != "chown root: /x" || fault.KindOf(err) != fault.Denied {
		t.Errorf("refused socket: %#v", err)
	}
	for name, d := range map[string]model.Dialer{"hanging dialer": hanging{}, "server that never reads": mute{t}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := New(Config{Timeout: 100 * time.Millisecond}, Deps{d}).Generate(t.Context(), ask(), nil)
			if model.ReasonOf(err) != model.ReasonTimeout || time.Since(start) > time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
	}
}

// A request that can't be encoded opens no connection.
func TestBadRequest(t *testing.T) {
	t.Parallel()
	d := &dialer{path: "/nonexistent"}
	b := New(Config{}, Deps{d})
	for reason, spoil := range map[model.Reason]func(*chat.Request){
		model.ReasonMalformed: func(r *chat.Request) { r.Messages[0].Text = "\xff" },
		model.ReasonTooLarge:  func(r *chat.Request) { r.Messages[0].Text = strings.Repeat("a", chat.MaxText+1) },
	} {
		r := ask()
		spoil(&r)
		if _, err := b.Generate(t.Context(), r, nil); model.ReasonOf(err) != reason {
			t.Errorf("error %v, want %s", err, reason)
		}
	}
	if d.n.Load() != 0 {
		t.Error("connected for a request that can't be sent")
	}
}
