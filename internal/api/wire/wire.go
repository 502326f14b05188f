// Package wire carries the control API over one connected stream: HTTP/2
// without TLS and with prior knowledge. One connection is one client; identity
// is the connection's, never a field's.
//
// State owned: none beyond the connection handed in. Imports: lib/fault.
// Imported by: client, cmd/agentosd, test servers. Invariants: Serve returns
// only when every handler has returned, so that what a handler records on
// cancellation is recorded. Tests: wire_test.go.
package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// BaseURL is what requests on a wire address; the name resolves nowhere.
const BaseURL = "http://agentosd"

// maxHeader bounds request headers in bytes.
const maxHeader = 16 << 10

// Client speaks on conn, which it owns from now on. Requests run concurrently on
// the one connection; once it is gone, they fail. ctx bounds the handshake.
func Client(ctx context.Context, conn net.Conn) (*http.Client, error) {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols:          &p,
		DisableCompression: true,
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	cc, err := t.NewClientConn(ctx, "http", "agentosd:80")
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &http.Client{Transport: cc}, nil
}

// Serve answers requests on conn until the peer closes it or ctx ends, then
// waits for the handlers, whose contexts are cancelled by then. It owns conn.
func Serve(ctx context.Context, conn net.Conn, h http.Handler) error {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	var running sync.WaitGroup
	done := make(chan struct{})
	srv := &http.Server{
		Protocols:         &p,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			h.ServeHTTP(w, r)
		}),
	}
	var closing sync.Once
	l := &listener{conn: &notifyConn{Conn: conn, closed: func() { closing.Do(func() { close(done) }) }}, done: done, ctx: ctx}
	err := srv.Serve(l)
	// Handlers of a closed connection still run: the server forgets them, we don't.
	_ = srv.Close()
	running.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// notifyConn tells the listener that its only connection ended.
type notifyConn struct {
	net.Conn
	closed func()
}

func (c *notifyConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// listener accepts its one connection once and ends with it.
type listener struct {
	once sync.Once
	conn net.Conn
	done chan struct{}
	ctx  context.Context
}

func (l *listener) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	select {
	case <-l.done:
	case <-l.ctx.Done():
	}
	return nil, net.ErrClosed
}

func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return l.conn.LocalAddr() }
