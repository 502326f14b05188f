// Package chat holds agentos.chat.v1: the provider-neutral types of one model
// exchange, which every front end and every backend translates to and from.
//
// State owned: none. Imports: standard library only. Imported by: reasoning,
// execution, the shim. The types carry untrusted text; nothing here gives it
// meaning. Limits are enforced by Request.Check and Response.Check.
// Tests: chat_test.go. Spec: OSA-04.
package chat

import (
	"encoding/json"
	"fmt"
)

// Version names this set of types in records.
const Version = "agentos.chat.v1"

// Role says who speaks in a message.
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// Message is one turn. An assistant message has text, tool calls or both; a
// tool message answers the call named by ToolCallID.
type Message struct {
	Role       Role       `json:"role"`
	Text       string     `json:"text,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// ToolCall is the model's proposal to call a tool. Arguments is the model's
// text, which may be anything: it is not yet known to be JSON.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Tool describes a tool to the model; Schema is a JSON Schema (draft 2020-12).
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
}

// Request asks for one turn.
type Request struct {
	Model           string    `json:"model,omitempty"`
	Messages        []Message `json:"messages"`
	Tools           []Tool    `json:"tools,omitempty"`
	MaxOutputTokens int       `json:"max_output_tokens"` // tokens; 1 at least
	Stream          bool      `json:"stream,omitempty"`
	// ToolChoice is empty (the server's default), auto, none or required.
	ToolChoice ToolChoice `json:"tool_choice,omitempty"`
	// ParallelToolCalls false asks for one call a turn; nil says nothing.
	ParallelToolCalls *bool     `json:"parallel_tool_calls,omitempty"`
	Sampling          *Sampling `json:"sampling,omitempty"`
}

// ToolChoice says whether the model may, must or must not call tools.
type ToolChoice string

// The tool choices.
const (
	ChooseAuto     ToolChoice = "auto"
	ChooseNone     ToolChoice = "none"
	ChooseRequired ToolChoice = "required"
)

// Sampling holds the client's wishes for the sampler. Nil fields are not sent.
type Sampling struct {
	Temperature *float64 `json:"temperature,omitempty"` // 0 to 2
	TopP        *float64 `json:"top_p,omitempty"`       // 0 to 1
	Seed        *int64   `json:"seed,omitempty"`
	Stop        []string `json:"stop,omitempty"` // MaxStops at most
}

// StopReason says why the model stopped.
type StopReason string

// The stop reasons.
const (
	StopEnd       StopReason = "end"        // finished its answer
	StopToolCalls StopReason = "tool_calls" // wants tools to be called
	StopLength    StopReason = "length"     // hit MaxOutputTokens
	StopRefused   StopReason = "refused"    // the model or a filter refused
)

// Usage counts tokens. Estimated is set when the backend reported none and we
// counted for it.
type Usage struct {
	InputTokens  int  `json:"input_tokens"`
	OutputTokens int  `json:"output_tokens"`
	Estimated    bool `json:"estimated,omitempty"`
}

// Total is input plus output.
func (u Usage) Total() int { return u.InputTokens + u.OutputTokens }

// Response is one finished turn.
type Response struct {
	ID      string     `json:"id,omitempty"`
	Model   string     `json:"model,omitempty"`
	Message Message    `json:"message"`
	Stop    StopReason `json:"stop"`
	Usage   Usage      `json:"usage"`
}

// Limits bound what Check accepts; bytes unless said otherwise.
const (
	MaxMessages      = 1024      // count
	MaxTools         = 128       // count
	MaxToolCalls     = 64        // count in one message
	MaxText          = 1 << 20   // one message's text
	MaxArguments     = 256 << 10 // one tool call's arguments
	MaxNameLen       = 128       // tool names and call IDs
	MaxStops         = 16        // count of stop strings, MaxNameLen bytes each
	MaxRequestBytes  = 8 << 20   // a whole encoded request
	MaxResponseBytes = 4 << 20   // a whole encoded response, streamed or not
)

// Check reports the first limit that r breaks.
func (r *Request) Check() error {
	switch {
	case len(r.Messages) == 0:
		return fmt.Errorf("request has no messages")
	case len(r.Messages) > MaxMessages:
		return fmt.Errorf("request has %d messages, limit %d", len(r.Messages), MaxMessages)
	case len(r.Tools) > MaxTools:
		return fmt.Errorf("request has %d tools, limit %d", len(r.Tools), MaxTools)
	case r.MaxOutputTokens < 1:
		return fmt.Errorf("request has no output limit")
	}
	switch r.ToolChoice {
	case "", ChooseAuto, ChooseNone, ChooseRequired:
	default:
		return fmt.Errorf("unknown tool choice %.40q", r.ToolChoice)
	}
	for i := range r.Tools {
		if n := len(r.Tools[i].Name); n == 0 || n > MaxNameLen {
			return fmt.Errorf("tool %d: name has %d bytes, want 1 to %d", i, n, MaxNameLen)
		}
	}
	for i := range r.Messages {
		if err := r.Messages[i].check(); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return r.Sampling.check()
}

func (s *Sampling) check() error {
	switch {
	case s == nil:
		return nil
	case s.Temperature != nil && !(*s.Temperature >= 0 && *s.Temperature <= 2):
		return fmt.Errorf("temperature %v, want 0 to 2", *s.Temperature)
	case s.TopP != nil && !(*s.TopP >= 0 && *s.TopP <= 1):
		return fmt.Errorf("top_p %v, want 0 to 1", *s.TopP)
	case len(s.Stop) > MaxStops:
		return fmt.Errorf("%d stop strings, limit %d", len(s.Stop), MaxStops)
	}
	for _, w := range s.Stop {
		if len(w) == 0 || len(w) > MaxNameLen {
			return fmt.Errorf("stop string has %d bytes, want 1 to %d", len(w), MaxNameLen)
		}
	}
	return nil
}

// Check reports the first limit that r breaks.
func (r *Response) Check() error {
	if r.Message.Role != Assistant {
		return fmt.Errorf("response has role %q, want assistant", r.Message.Role)
	}
	return r.Message.check()
}

func (m *Message) check() error {
	switch m.Role {
	case System, User, Assistant, ToolRole:
	default:
		return fmt.Errorf("unknown role %q", m.Role)
	}
	if len(m.Text) > MaxText {
		return fmt.Errorf("text has %d bytes, limit %d", len(m.Text), MaxText)
	}
	if len(m.ToolCalls) > MaxToolCalls {
		return fmt.Errorf("%d tool calls, limit %d", len(m.ToolCalls), MaxToolCalls)
	}
	if len(m.ToolCallID) > MaxNameLen {
		return fmt.Errorf("tool call ID longer than %d bytes", MaxNameLen)
	}
	for _, c := range m.ToolCalls {
		if len(c.Arguments) > MaxArguments {
			return fmt.Errorf("arguments of %.40q have %d bytes, limit %d", c.Name, len(c.Arguments), MaxArguments)
		}
		if len(c.Name) > MaxNameLen || len(c.ID) > MaxNameLen {
			return fmt.Errorf("tool call name or ID longer than %d bytes", MaxNameLen)
		}
	}
	return nil
}
