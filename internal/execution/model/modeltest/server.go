package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
)

// Turn is how one request is answered: with Response, or with Fault.
type Turn struct {
	Response *chat.Response `json:"response,omitempty"`
	Fault    Fault          `json:"fault,omitempty"`
	// Expect, if not empty, must occur in the request's body; else the answer is
	// status 409 and the script does not go on.
	Expect string `json:"expect,omitempty"`
}

// Script is the file of integration/modelserver.
type Script struct {
	Turns []Turn `json:"turns"`
	// Repeat answers every request after the last turn with the last turn.
	Repeat bool `json:"repeat,omitempty"`
}

// ParseScript reads a script strictly.
func ParseScript(b []byte) (Script, error) {
	var s Script
	if err := json.Unmarshal(b, &s, json.RejectUnknownMembers(true)); err != nil {
		return s, fmt.Errorf("parse script: %w", err)
	}
	for i, t := range s.Turns {
		if (t.Response == nil) == (t.Fault == "") || t.Fault != "" && !t.Fault.Known() {
			return s, fmt.Errorf("parse script: turn %d needs a response or a known fault", i)
		}
	}
	return s, nil
}

// Server answers Chat Completions by a script.
type Server struct {
	mu       sync.Mutex
	script   Script
	next     int
	requests []chat.Request
}

// NewServer starts nothing.
func NewServer(s Script) *Server { return &Server{script: s} }

// Requests returns what was asked so far.
func (s *Server) Requests() []chat.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]chat.Request(nil), s.requests...)
}

// Serve answers on l until ctx ends, then closes l and every connection.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve model: %w", err)
	}
	return nil
}

// Start serves turns on a Unix socket until the test ends.
func Start(t testing.TB, s Script) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := NewServer(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return srv, path
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Set-Cookie", canary)
	body, err := io.ReadAll(io.LimitReader(r.Body, chat.MaxRequestBytes+1))
	if err != nil {
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
		refuse(w, http.StatusNotFound, "no such endpoint")
		return
	}
	req, err := completions.DecodeRequest(body)
	var bad *completions.Error
	if errors.As(err, &bad) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(bad.HTTPStatus())
		_, _ = w.Write(bad.Body())
		return
	}
	t, problem := s.turn(req.Request, body)
	if problem != "" {
		refuse(w, http.StatusConflict, problem)
		return
	}
	if t.Fault != "" {
		misbehave(w, r, t.Fault, req.Stream)
		return
	}
	respond(w, req, *t.Response)
}

func (s *Server) turn(req chat.Request, body []byte) (Turn, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	i := s.next
	if i >= len(s.script.Turns) {
		if !s.script.Repeat || len(s.script.Turns) == 0 {
			return Turn{}, "the script has no turn left"
		}
		i = len(s.script.Turns) - 1
	}
	t := s.script.Turns[i]
	if !bytes.Contains(body, []byte(t.Expect)) {
		return Turn{}, fmt.Sprintf("turn %d expects %q in the request", i, t.Expect)
	}
	s.next++
	return t, ""
}

func refuse(w http.ResponseWriter, status int, msg string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(completions.EncodeError(completions.ServerError{Message: msg, Type: "invalid_request_error"}))
}

func respond(w http.ResponseWriter, req completions.ServerRequest, resp chat.Response) {
	if !req.Stream {
		b, err := completions.EncodeResponse(resp, 1)
		if err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := completions.NewStreamWriter(w, resp.ID, resp.Model, 1, req.IncludeUsage)
	for text := resp.Message.Text; text != ""; {
		_, n := firstRunes(text, 5)
		if out.Text(text[:n]) != nil {
			return
		}
		text = text[n:]
	}
	_ = out.Finish(resp)
}

// firstRunes returns the first n characters of s and how many bytes they have.
func firstRunes(s string, n int) (string, int) {
	for i := range s {
		if n == 0 {
			return s[:i], i
		}
		n--
	}
	return s, len(s)
}

// misbehave shows fault f.
func misbehave(w http.ResponseWriter, r *http.Request, f Fault, stream bool) {
	e := faults[f]
	kind := "application/json"
	if stream {
		kind = "text/event-stream"
	}
	switch f {
	case Close, Garbage, Cut, BigHeaders:
		breakConnection(w, f, kind)
		return
	case Silent:
		<-r.Context().Done()
		return
	case Busy:
		w.Header().Set("Retry-After", "7")
	case Redirect:
		w.Header().Set("Location", "http://elsewhere.invalid/v1/chat/completions")
	}
	if e.status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(e.status)
		_, _ = io.WriteString(w, e.bodyWhole)
		return
	}
	w.Header().Set("Content-Type", kind)
	switch f {
	case Stall, Endless, Comments:
		keepGoing(w, r, f, stream)
	default:
		_, _ = io.WriteString(w, f.Body(stream))
	}
}

func keepGoing(w http.ResponseWriter, r *http.Request, f Fault, stream bool) {
	piece := strings.Repeat(" ", 4096)
	switch {
	case stream && f == Endless:
		piece = delta(`"content":"again "`)
	case stream:
		piece = ": still here\n\n"
	}
	for {
		if _, err := io.WriteString(w, piece); err != nil {
			return
		}
		if f == Stall {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
	}
}

func breakConnection(w http.ResponseWriter, f Fault, kind string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	switch f {
	case Garbage:
		_, _ = io.WriteString(c, "\x00\x01\x02 hello\n\n")
	case BigHeaders:
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("a", 1<<20)+"\r\n\r\n")
	case Cut:
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: "+kind+"\r\nContent-Length: 4096\r\n\r\n"+delta(hello)+finish)
	}
}

// Left is how many turns were not used.
func (s *Server) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.script.Turns) - s.next
}
