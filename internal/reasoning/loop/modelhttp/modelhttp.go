// Package modelhttp lets the loop ask a model by Chat Completions over HTTP/1.1
// on one connection that it was given, kept alive from turn to turn.
//
// State owned: the connection. Imports: reasoning/loop, lib/chat,
// lib/chat/completions. Imported by: cmd/agentos-loop. Portable; opens nothing:
// once the connection is lost every turn fails. No proxy, no redirect, no
// cookies, no compression.
// Lock order: none. Invariants: no more than chat.MaxResponseBytes of an answer
// are read; errors are *loop.ModelError with the endpoint's code.
// Tests: modelhttp_test.go. Spec: OSA-01.
package modelhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"

	"agentos/internal/lib/chat"
	"agentos/internal/lib/chat/completions"
	"agentos/internal/reasoning/loop"
)

// The host name means nothing: every request goes to the one connection.
const endpoint = "http://model/v1/chat/completions"

const maxHeader = 32 << 10 // bytes of an answer's header

// Client implements loop.Model. It is not safe for concurrent use.
type Client struct {
	http *http.Client
}

var errLost = errors.New("the model endpoint's connection is gone")

// New returns a client on conn, which it owns from now on.
func New(conn net.Conn) *Client {
	var once sync.Once
	return &Client{http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				err := errLost
				once.Do(func() { err = nil })
				if err != nil {
					return nil, err
				}
				return conn, nil
			},
			MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1,
			DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
	}}
}

// Generate asks for one turn.
func (c *Client) Generate(ctx context.Context, req chat.Request) (chat.Response, error) {
	body, err := completions.EncodeRequest(req)
	if err != nil {
		return chat.Response{}, &loop.ModelError{Code: "too_large", Msg: chat.Clean(err.Error(), 512)}
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return chat.Response{}, fmt.Errorf("make request: %w", err)
	}
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set("User-Agent", "agentos-loop")
	res, err := c.http.Do(hr)
	if err != nil {
		return chat.Response{}, transport(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return chat.Response{}, refusal(res)
	}
	out, err := c.read(res, len(body))
	if err != nil {
		return chat.Response{}, codec(err)
	}
	// What follows an answer is read, or the connection would not be reused; a
	// server that goes on for ever loses it.
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	return out, nil
}

func (c *Client) read(res *http.Response, requestBytes int) (chat.Response, error) {
	if t, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil && t == "text/event-stream" {
		return completions.ReadStream(res.Body, requestBytes, nil)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, chat.MaxResponseBytes+1))
	if err != nil {
		return chat.Response{}, &completions.Error{Kind: completions.Read, Msg: "read answer", Err: err}
	}
	return completions.DecodeResponse(b, requestBytes)
}

// refusal reads an error body.
func refusal(res *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return transport(err)
	}
	e := completions.DecodeError(b)
	code := e.Code
	if code == "" && e.ContextExceeded() {
		code = string(completions.Context)
	}
	msg := e.Message // our endpoint's own words need no status
	if code == "" || msg == "" {
		msg = fmt.Sprintf("%s (status %d)", e.String(), res.StatusCode)
	}
	return &loop.ModelError{Code: code, Msg: msg}
}

// codec turns the codec's error into the loop's. An error event in a stream
// carries the endpoint's own code.
func codec(err error) error {
	var e *completions.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Kind == completions.Read:
		return transport(err)
	case e.Code != "":
		return &loop.ModelError{Code: e.Code, Msg: e.Msg}
	default:
		return &loop.ModelError{Code: string(e.Kind), Msg: e.Msg}
	}
}

func transport(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &loop.ModelError{Code: "unavailable", Msg: chat.Clean(err.Error(), 512)}
}
