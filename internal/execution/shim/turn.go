package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
)

// turnWriter writes one turn to the agent, whole or as a stream.
type turnWriter struct {
	w             http.ResponseWriter
	stream, usage bool
	model         string
	sw            *completions.StreamWriter
}

func (t *turnWriter) start() *completions.StreamWriter {
	if t.sw == nil {
		t.w.Header().Set("Content-Type", "text/event-stream")
		t.w.WriteHeader(http.StatusOK)
		t.sw = completions.NewStreamWriter(flusher{t.w}, "chatcmpl-agentos", t.model, 0, t.usage)
	}
	return t.sw
}

func (t *turnWriter) text(delta string) { _ = t.start().Text(delta) }

func (t *turnWriter) finish(r chat.Response) {
	if t.stream {
		_ = t.start().Finish(r)
		return
	}
	b, err := completions.EncodeResponse(r, 0)
	if err != nil {
		writeError(t.w, http.StatusBadGateway, "malformed", err.Error())
		return
	}
	t.w.Header().Set("Content-Type", "application/json")
	_, _ = t.w.Write(b)
}

// fail reports an error: as a status while none was sent, else as an error
// event, after which the stream ends without its end marker.
func (t *turnWriter) fail(f failure) {
	if t.sw == nil {
		writeError(t.w, f.status, f.code, f.message)
		return
	}
	body := completions.EncodeError(completions.ServerError{Message: f.message, Type: "agentos_error", Code: f.code})
	_, _ = fmt.Fprintf(flusher{t.w}, "data: %s\n\n", body)
}

// flusher gives a response writer the Flush method that a stream needs.
type flusher struct{ http.ResponseWriter }

func (f flusher) Flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() }

func writeError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(completions.EncodeError(completions.ServerError{Message: message, Type: "agentos_error", Code: code}))
}

func writeCodecError(w http.ResponseWriter, err error) {
	var e *completions.Error
	if !errors.As(err, &e) {
		writeError(w, http.StatusBadRequest, "malformed", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.HTTPStatus())
	_, _ = w.Write(e.Body())
}

func encodeResponse(r chat.Response) ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode response: %w", err)
	}
	return b, nil
}

// oneConn is a listener with exactly one connection: Accept gives it once and
// then waits until it is closed.
type oneConn struct {
	conn   net.Conn
	first  sync.Once
	once   sync.Once
	closed chan struct{}
}

func newOneConn(c net.Conn) *oneConn { return &oneConn{conn: c, closed: make(chan struct{})} }

func (o *oneConn) Accept() (net.Conn, error) {
	var c net.Conn
	o.first.Do(func() { c = o.conn })
	if c != nil {
		return c, nil
	}
	<-o.closed
	return nil, io.EOF
}

// state ends Accept's wait when the server is through with the connection.
func (o *oneConn) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		_ = o.Close()
	}
}

func (o *oneConn) Close() error { o.once.Do(func() { close(o.closed) }); return nil }

func (o *oneConn) Addr() net.Addr { return o.conn.LocalAddr() }
