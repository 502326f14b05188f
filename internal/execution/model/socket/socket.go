// Package socket is the model backend that speaks Chat Completions (HTTP/1.1)
// over a connection that it is handed, usually to a filesystem Unix socket.
//
// State owned: none between calls. Imports: execution/model, lib/chat,
// lib/chat/completions, net/http. Imported by: the shim. Portable: it opens no
// connection itself; host/peersock checks the socket before there is one.
// Invariants: one call, one connection, one request: never retried, never
// redirected, no proxy, no compression; no header of either side in an error.
// Tests: socket_test.go, by model/modeltest.
package socket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
)

// Config of a backend. Zero values take the defaults.
type Config struct {
	// Model overrides the request's model name; "" keeps it.
	Model string
	// Path of the endpoint; "/v1/chat/completions".
	Path string
	// Stream asks the server for a stream also when the request does not want
	// one: an idle server is then noticed earlier.
	Stream bool
	// Timeout bounds a whole call; 120 s. A deadline of ctx comes on top.
	Timeout time.Duration
	// IdleTimeout bounds how long a streamed body may say nothing; 30 s.
	IdleTimeout time.Duration
}

// Deps of a backend.
type Deps struct{ Dialer model.Dialer }

// Limits of what is read besides the body, in bytes.
const (
	maxHeader    = 64 << 10
	maxErrorBody = 64 << 10
)

// Backend is one configured socket.
type Backend struct {
	cfg    Config
	dialer model.Dialer
}

// New fills in the defaults and connects to nothing.
func New(cfg Config, deps Deps) *Backend {
	if cfg.Path == "" {
		cfg.Path = "/v1/chat/completions"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 120 * time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 30 * time.Second
	}
	return &Backend{cfg: cfg, dialer: deps.Dialer}
}

// Name is "socket".
func (*Backend) Name() string { return "socket" }

// errIdle is the cause when the server said nothing for too long.
var errIdle = errors.New("idle")

// Generate sends req over a new connection. See model.Backend.
func (b *Backend) Generate(ctx context.Context, req chat.Request, sink func(string)) (chat.Response, error) {
	if !req.Stream {
		sink = nil
	}
	if b.cfg.Model != "" {
		req.Model = b.cfg.Model
	}
	req.Stream = b.cfg.Stream || req.Stream
	body, err := completions.EncodeRequest(req)
	if err != nil {
		return chat.Response{}, convert(err)
	}
	ctx, cancelTimeout := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := call{ctx: ctx, cancel: cancel, cfg: b.cfg, dialer: b.dialer}
	resp, err := c.do(body, req.Stream, sink)
	if err != nil {
		return chat.Response{}, c.explain(err)
	}
	return resp, nil
}

// call is one exchange.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	cfg    Config
	dialer model.Dialer
	dialed atomic.Bool
	got    atomic.Int64 // bytes received
}

func (c *call) do(body []byte, stream bool, sink func(string)) (chat.Response, error) {
	// A transport of its own: nothing is pooled, so nothing can be reused.
	t := &http.Transport{
		DialContext:            c.dial,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	defer t.CloseIdleConnections()
	// The body is no bytes.Reader to net/http, so it can't be sent again.
	r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "http://model"+c.cfg.Path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return chat.Response{}, err
	}
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if stream {
		r.Header.Set("Accept", "text/event-stream")
	}
	r.Header.Set("User-Agent", "agentos")
	// RoundTrip, not a Client: redirects are answers.
	resp, err := t.RoundTrip(r)
	if err != nil {
		return chat.Response{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return chat.Response{}, statusError(resp)
	}
	return c.read(resp, len(body), stream, sink)
}

func (c *call) read(resp *http.Response, requestBytes int, stream bool, sink func(string)) (chat.Response, error) {
	// Some servers ignore "stream"; the type says what came.
	switch t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t {
	case "text/event-stream":
		stream = true
	case "application/json":
		stream = false
	}
	if stream {
		idle := time.AfterFunc(c.cfg.IdleTimeout, func() { c.cancel(errIdle) })
		defer idle.Stop()
		return completions.ReadStream(&watched{resp.Body, idle, c.cfg.IdleTimeout}, requestBytes, sink)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, chat.MaxResponseBytes+1))
	if err != nil {
		return chat.Response{}, err
	}
	out, err := completions.DecodeResponse(b, requestBytes)
	if err == nil && sink != nil && out.Message.Text != "" {
		sink(out.Message.Text)
	}
	return out, err
}

// watched runs the idle timer while it waits for the server, not while the
// caller works on what came.
type watched struct {
	r    io.Reader
	idle *time.Timer
	wait time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	w.idle.Reset(w.wait)
	defer w.idle.Stop()
	return w.r.Read(p)
}

// dial hands out the call's only connection.
func (c *call) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.dialed.Swap(true) {
		return nil, errors.New("one call has one connection")
	}
	conn, err := c.dialer.Dial(ctx)
	if err != nil {
		return nil, &dialError{err}
	}
	return &counted{conn, &c.got}, nil
}

type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}
