package replay

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/fault"
)

// Version names the script format.
const Version = "agentos.replay.v1"

// Limits of a script.
const (
	MaxBytes = 64 << 20
	MaxTurns = 10_000
)

// Script is a list of turns, used in order.
type Script struct{ Turns []Turn }

// Turn is one answer: exactly one of Response, Body, Events and Fail.
type Turn struct {
	Response *chat.Response `json:"response,omitzero"` // agentos.chat.v1
	Body     *string        `json:"body,omitzero"`     // a Chat Completions body, to be decoded
	Events   *string        `json:"events,omitzero"`   // a Chat Completions stream, to be decoded
	Fail     *Fail          `json:"fail,omitzero"`
	Expect   *Expect        `json:"expect,omitzero"`
}

// Fail makes the turn an error.
type Fail struct {
	Reason  model.Reason `json:"reason"`
	Message string       `json:"message,omitzero"`
}

// Expect is what must be true of the request; absent members are not checked.
type Expect struct {
	ToolResultFor string   `json:"tool_result_for,omitzero"` // some tool message answers this call ID
	Contains      string   `json:"contains,omitzero"`        // in the text of some message
	LastRole      string   `json:"last_role,omitzero"`       // of the last message
	Tools         []string `json:"tools,omitempty"`          // are all offered
}

// Parse reads a script: one JSON object with version and turns, or JSON Lines
// with one turn a line. Errors are faults of kind Malformed or Limit that name
// the turn.
func Parse(data []byte) (Script, error) {
	if len(data) > MaxBytes {
		return Script{}, fault.New(fault.Limit, "make the script smaller", "read replay script: %d bytes, limit %d", len(data), MaxBytes)
	}
	turns, err := split(data)
	if err != nil {
		return Script{}, err
	}
	if len(turns) == 0 || len(turns) > MaxTurns {
		return Script{}, fault.New(fault.Limit, "give 1 to 10000 turns", "read replay script: %d turns", len(turns))
	}
	var s Script
	for i, raw := range turns {
		var t Turn
		if err := json.Unmarshal(raw, &t, json.RejectUnknownMembers(true)); err != nil {
			return Script{}, malformed(err, "turn %d", i+1)
		}
		if err := t.check(); err != nil {
			return Script{}, malformed(err, "turn %d", i+1)
		}
		s.Turns = append(s.Turns, t)
	}
	return s, nil
}

// split takes the turns out of either form. A first object with "turns" makes it
// the first form.
func split(data []byte) ([]jsontext.Value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	var docs []jsontext.Value
	for d.PeekKind() != 0 && len(docs) <= MaxTurns {
		v, err := d.ReadValue()
		if err != nil {
			return nil, malformed(err, "document %d", len(docs)+1)
		}
		docs = append(docs, v.Clone())
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 && len(docs) <= MaxTurns {
		return nil, malformed(fmt.Errorf("not json: %.20q", rest), "document %d", len(docs)+1)
	}
	if len(docs) != 1 {
		return docs, nil
	}
	var probe map[string]jsontext.Value
	if err := json.Unmarshal(docs[0], &probe); err != nil {
		return nil, malformed(err, "document 1")
	}
	if _, ok := probe["turns"]; !ok {
		return docs, nil
	}
	var file struct {
		Version string           `json:"version"`
		Turns   []jsontext.Value `json:"turns"`
	}
	if err := json.Unmarshal(docs[0], &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, malformed(err, "document 1")
	}
	if file.Version != Version {
		return nil, malformed(fmt.Errorf("version %.40q, want %q", file.Version, Version), "document 1")
	}
	return file.Turns, nil
}

func malformed(err error, format string, args ...any) error {
	return fault.Wrap(err, fault.Malformed, "see docs/spec/replay.md", "read replay script: "+format, args...)
}

func (t Turn) check() error {
	n := 0
	for _, set := range []bool{t.Response != nil, t.Body != nil, t.Events != nil, t.Fail != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return fmt.Errorf("has %d of response, body, events and fail, want 1", n)
	case t.Fail != nil && !reasonKnown(t.Fail.Reason):
		return fmt.Errorf("unknown reason %.40q", t.Fail.Reason)
	case t.Response != nil:
		return checkResponse(t.Response)
	}
	return nil
}

func checkResponse(r *chat.Response) error {
	switch r.Stop {
	case chat.StopEnd, chat.StopToolCalls, chat.StopLength, chat.StopRefused:
	default:
		return fmt.Errorf("unknown stop reason %.40q", r.Stop)
	}
	if r.Usage.InputTokens < 0 || r.Usage.OutputTokens < 0 {
		return fmt.Errorf("negative usage")
	}
	if r.Stop == chat.StopToolCalls && len(r.Message.ToolCalls) == 0 {
		return fmt.Errorf("stop reason tool_calls without tool calls")
	}
	return r.Check()
}

func reasonKnown(r model.Reason) bool {
	return slices.Contains([]model.Reason{
		model.ReasonUnavailable, model.ReasonTimeout, model.ReasonCancelled, model.ReasonMalformed, model.ReasonTruncated,
		model.ReasonTooLarge, model.ReasonContext, model.ReasonRejected, model.ReasonServer, model.ReasonNotUnderstood, model.ReasonExhausted,
	}, r)
}

// check returns what the request lacks, or "".
func (e *Expect) check(req chat.Request) string {
	if e == nil {
		return ""
	}
	last := ""
	answered, contains := e.ToolResultFor == "", e.Contains == ""
	for _, m := range req.Messages {
		last = string(m.Role)
		answered = answered || m.Role == chat.ToolRole && m.ToolCallID == e.ToolResultFor
		contains = contains || strings.Contains(m.Text, e.Contains)
	}
	switch {
	case !answered:
		return fmt.Sprintf("the request has no result for call %q", chat.Clean(e.ToolResultFor, 128))
	case !contains:
		return fmt.Sprintf("no message of the request contains %q", chat.Clean(e.Contains, 128))
	case e.LastRole != "" && e.LastRole != last:
		return fmt.Sprintf("the last message is %q, not %q", last, chat.Clean(e.LastRole, 40))
	}
	for _, want := range e.Tools {
		if !slices.ContainsFunc(req.Tools, func(t chat.Tool) bool { return t.Name == want }) {
			return fmt.Sprintf("the request does not offer the tool %q", chat.Clean(want, 128))
		}
	}
	return ""
}
