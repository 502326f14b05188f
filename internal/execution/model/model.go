// Package model is the one interface behind which every model backend stands,
// with its typed errors and its conformance suite (model/modeltest).
//
// State owned: none. Imports: lib/chat, lib/fault. Imported by: the backends
// (one package each), the shim. Backends run in the shim's process: keys and
// connections never enter the agent's. A backend opens no connection itself; it
// is handed one per call by whoever holds the permit (Dialer).
// Tests: model_test.go; each backend runs modeltest.Run.
package model

import (
	"context"
	"errors"
	"net"

	"agentos/internal/lib/chat"
)

// Backend answers one turn.
type Backend interface {
	// Name is the backend's configuration name: "socket", "replay", "rules".
	Name() string
	// Generate answers req. When req.Stream is set it calls sink, in order and
	// from this goroutine only, with the text as it comes; the returned response
	// is always complete. It honours ctx within one second. Errors are *Error.
	// Safe for sequential use; not for concurrent use.
	Generate(ctx context.Context, req chat.Request, sink func(textDelta string)) (chat.Response, error)
}

// Dialer hands out the connection that a permit allows. One call, one
// connection; the backend closes it.
type Dialer interface {
	Dial(ctx context.Context) (net.Conn, error)
}

// Reason classifies a backend's failure.
type Reason string

// The closed set.
const (
	ReasonUnavailable   Reason = "unavailable"      // can't connect, or the server went away before a byte
	ReasonTimeout       Reason = "timeout"          // deadline, also between chunks
	ReasonCancelled     Reason = "cancelled"        // ctx was cancelled
	ReasonMalformed     Reason = "malformed"        // bytes that are not the protocol
	ReasonTruncated     Reason = "truncated"        // stream ended before its end marker
	ReasonTooLarge      Reason = "too_large"        // more bytes than chat's limits
	ReasonContext       Reason = "context_exceeded" // the prompt doesn't fit the model
	ReasonRejected      Reason = "rejected"         // the server refused the request (4xx)
	ReasonServer        Reason = "server_error"     // 5xx or an error event in the stream
	ReasonNotUnderstood Reason = "not_understood"   // rules: no intent matches the goal
	ReasonExhausted     Reason = "exhausted"        // replay: no turn left
)

// Error is a backend's failure. Msg holds no secret and at most 512 bytes of
// what the server said.
type Error struct {
	Reason Reason
	Msg    string
	Next   string // what to do next
	// Usage is what the server reported before it failed, if it did.
	Usage *chat.Usage
	Err   error
}

// Error renders reason and message.
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Msg }

// Unwrap returns the inner cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason in err's chain, or "".
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}
