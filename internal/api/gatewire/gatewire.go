// Package gatewire is the vocabulary between a run's shim and the gate's
// process: canonical calls up, decisions and results down. Each message is a
// small JSON header and an opaque blob (arguments, a model request, a result),
// so that bytes whose hash is recorded travel unchanged.
//
// State owned: none. Imports: go-json-experiment/json. Imported by: the shim,
// control. Invariants: a message is bounded before it is parsed; a header has
// exactly one member set and no unknown ones; the blob is never interpreted
// here. Format: docs/spec/gate-wire.md. Tests: gatewire_test.go, run_test.go,
// FuzzDecode.
package gatewire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// Limits in bytes.
const (
	MaxMessage = 12 << 20 // header and blob
	MaxHeader  = 256 << 10
)

// Up is a message from the shim. Exactly one member is set.
type Up struct {
	Ready     *Ready     `json:"ready,omitempty"`
	Tool      *Tool      `json:"tool,omitempty"`       // blob: arguments as the agent sent them
	Model     *Model     `json:"model,omitempty"`      // blob: canonical model context
	ModelDone *ModelDone `json:"model_done,omitempty"` // blob: agentos.chat.v1 response
	Cancel    *Cancel    `json:"cancel,omitempty"`
	Text      *Text      `json:"text,omitempty"`
	LoopEnd   *LoopEnd   `json:"loop_end,omitempty"`  // blob: the final answer, untrusted text
	RunOutput *RunOutput `json:"run_output,omitzero"` // blob: what the program wrote
	RunTaken  *RunTaken  `json:"run_taken,omitempty"`
	RunSignal *RunSignal `json:"run_signal,omitempty"`
	RunClosed *RunClosed `json:"run_closed,omitzero"`
}

// Ready says that the shim has confined itself and waits for Hello.
type Ready struct {
	LandlockABI int      `json:"landlock_abi"`
	NotEnforced []string `json:"not_enforced,omitempty"`
}

// Tool proposes a tool call. IDs are chosen by the shim, unique on a connection.
type Tool struct {
	ID   uint64 `json:"id"`
	Name string `json:"name"`
}

// Model proposes a model call.
type Model struct {
	ID        uint64 `json:"id"`
	MaxOutput int    `json:"max_output_tokens"` // tokens; what the request will carry
	Stream    bool   `json:"stream,omitempty"`
}

// ModelDone reports how an admitted model call ended.
type ModelDone struct {
	ID           uint64 `json:"id"`
	Status       string `json:"status"`           // ok, error, timeout, cancelled
	Reason       string `json:"reason,omitempty"` // execution/model's closed set
	Message      string `json:"message,omitempty"`
	Next         string `json:"next,omitempty"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	Estimated    bool   `json:"estimated,omitempty"`
}

// Cancel says that the agent gave up on a proposal.
type Cancel struct {
	ID uint64 `json:"id"`
}

// Text is a piece of a streamed answer, for display only.
type Text struct {
	ID   uint64 `json:"id"`
	Text string `json:"text"`
}

// LoopEnd says how the loop reported its end: its word, not a fact.
type LoopEnd struct {
	Reason     string `json:"reason,omitempty"` // endreason; empty when there was no valid report
	Detail     string `json:"detail,omitempty"`
	Iterations int    `json:"iterations,omitempty"`
}

// Down is a message to the shim. Exactly one member is set.
type Down struct {
	Hello    *Hello    `json:"hello,omitempty"` // descriptors: see Hello
	Begin    *Begin    `json:"begin,omitempty"` // descriptor: the model's connection, if it has one
	Abort    *Abort    `json:"abort,omitempty"`
	Answer   *Answer   `json:"answer,omitempty"`   // blob: a tool's result document
	RunInput *RunInput `json:"run_input,omitzero"` // blob: what the program reads
}

// KindRun is the kind of a run that wraps a program of others.
const KindRun = "run"

// Hello opens a run. It comes with the run's descriptors. Without Kind, the
// built-in loop, in this order: MCP connection, model endpoint connection, the
// loop's standard output, and the replay script when Backend is "replay". With
// KindRun only the lifeline, see run.go, and no tool and no backend are set.
type Hello struct {
	Kind      string     `json:"kind,omitempty"`
	Run       string     `json:"run"`
	Name      string     `json:"name,omitempty"` // KindRun: what people call it
	TTY       bool       `json:"tty,omitempty"`  // KindRun: a terminal instead of three pipes
	Tools     []ToolInfo `json:"tools"`
	Backend   string     `json:"backend"`
	Model     string     `json:"model"` // name sent to the backend
	Stream    bool       `json:"stream,omitempty"`
	MaxOutput int        `json:"max_output_tokens"` // per turn; requests are cut to it
	TimeoutMS int        `json:"timeout_ms"`        // one model call
}

// ToolInfo is what the agent may know of a tool.
type ToolInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Schema      string `json:"schema"`              // JSON Schema
	ReadOnly    bool   `json:"read_only,omitempty"` // changes nothing
}

// Begin says that a model call was admitted and recorded: do it now.
type Begin struct {
	ID   uint64 `json:"id"`
	Call string `json:"call"`
}

// Abort ends a model call that was begun: deadline or stop.
type Abort struct {
	ID     uint64 `json:"id"`
	Reason string `json:"reason"` // timeout, cancelled
}

// Answer closes a proposal. Its outcome is durable.
type Answer struct {
	ID     uint64  `json:"id"`
	Call   string  `json:"call"`
	Status string  `json:"status"` // call.Status
	Reason string  `json:"reason,omitempty"`
	Denied *Denied `json:"denied,omitempty"`
	Label  string  `json:"label,omitempty"` // integrity of the result
}

// Denied says which stage refused.
type Denied struct {
	Stage  string `json:"stage"`
	Kind   string `json:"kind"` // denied or limit
	Reason string `json:"reason"`
	Next   string `json:"next,omitempty"`
	// Resource is the budget that refused, when one did: tokens, tool_calls, …
	Resource string `json:"resource,omitempty"`
}

// ErrFormat is the base of every decoding error.
var ErrFormat = errors.New("gate wire message is not valid")

// EncodeUp and EncodeDown make the bytes of one message.
func EncodeUp(m Up, blob []byte) ([]byte, error) { return encode(m, blob) }

// EncodeDown is EncodeUp for the other direction.
func EncodeDown(m Down, blob []byte) ([]byte, error) { return encode(m, blob) }

// DecodeUp parses a message; the blob aliases b.
func DecodeUp(b []byte) (Up, []byte, error) {
	var m Up
	blob, err := decode(b, &m)
	if err == nil && count(m.Ready != nil, m.Tool != nil, m.Model != nil, m.ModelDone != nil,
		m.Cancel != nil, m.Text != nil, m.LoopEnd != nil,
		m.RunOutput != nil, m.RunTaken != nil, m.RunSignal != nil, m.RunClosed != nil) != 1 {
		err = fmt.Errorf("%w: exactly one member must be set", ErrFormat)
	}
	if err == nil {
		err = m.checkRun(len(blob))
	}
	return m, blob, err
}

// DecodeDown is DecodeUp for the other direction.
func DecodeDown(b []byte) (Down, []byte, error) {
	var m Down
	blob, err := decode(b, &m)
	if err == nil && count(m.Hello != nil, m.Begin != nil, m.Abort != nil, m.Answer != nil, m.RunInput != nil) != 1 {
		err = fmt.Errorf("%w: exactly one member must be set", ErrFormat)
	}
	if err == nil {
		err = m.checkRun(len(blob))
	}
	return m, blob, err
}

func encode(m any, blob []byte) ([]byte, error) {
	h, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode gate wire message: %w", err)
	}
	if len(h) > MaxHeader || 4+len(h)+len(blob) > MaxMessage {
		return nil, fmt.Errorf("%w: header %d, blob %d bytes, limits %d and %d", ErrFormat, len(h), len(blob), MaxHeader, MaxMessage)
	}
	out := make([]byte, 4, 4+len(h)+len(blob))
	binary.BigEndian.PutUint32(out, uint32(len(h)))
	return append(append(out, h...), blob...), nil
}

func decode(b []byte, m any) (blob []byte, err error) {
	if len(b) < 4 || len(b) > MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes", ErrFormat, len(b))
	}
	n := binary.BigEndian.Uint32(b)
	if n > MaxHeader || int(n) > len(b)-4 {
		return nil, fmt.Errorf("%w: header of %d bytes", ErrFormat, n)
	}
	if err := json.Unmarshal(b[4:4+n], m, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return b[4+n:], nil
}

func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
