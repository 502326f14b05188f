package completions

import (
	"strings"

	"agentos/internal/lib/chat"
)

// assembly builds one response from its parts, within chat's limits.
type assembly struct {
	id, model string
	content   strings.Builder
	calls     []*partCall
	byIndex   map[int]*partCall
	finish    string
	refused   bool
	reported  *readUsage
	inBytes   int
	sink      func(string)
}

type partCall struct {
	id, name  string
	arguments strings.Builder
}

func newAssembly(requestBytes int, sink func(string)) *assembly {
	return &assembly{byIndex: map[int]*partCall{}, inBytes: requestBytes, sink: sink}
}

func (a *assembly) head(r readResponse) {
	if a.id == "" {
		a.id = chat.Clean(r.ID, chat.MaxNameLen)
	}
	if a.model == "" {
		a.model = chat.Clean(r.Model, chat.MaxNameLen)
	}
	if r.Usage != nil {
		a.reported = r.Usage
	}
}

func (a *assembly) text(m readMessage) error {
	if m.Role != "" && m.Role != "assistant" {
		return fail(Malformed, "", "response has role %.40q, want assistant", m.Role)
	}
	s, err := decodeText(m.Content)
	if err != nil {
		return err
	}
	if s == "" && m.Refusal != "" {
		s, a.refused = m.Refusal, true
	}
	if s == "" {
		return nil
	}
	if a.content.Len()+len(s) > chat.MaxText {
		return fail(TooLarge, "", "response text exceeds %d bytes", chat.MaxText)
	}
	a.content.WriteString(s)
	if a.sink != nil {
		a.sink(s)
	}
	return nil
}

// fragment adds a piece of a streamed call. Servers number calls by index, or
// number none, or number all of them 0; a new ID together with a name starts a
// new call in each case.
func (a *assembly) fragment(f readCall) error {
	var c *partCall
	switch {
	case f.Index != nil:
		c = a.byIndex[*f.Index]
	case len(a.calls) > 0:
		c = a.calls[len(a.calls)-1]
	}
	if c == nil || (f.ID != "" && c.id != "" && f.ID != c.id) {
		return a.start(f)
	}
	if c.id == "" {
		c.id = f.ID
	}
	if f.Function.Name != "" && f.Function.Name != c.name {
		return fail(Malformed, "", "tool call %.60q changes its name", c.name)
	}
	return a.arguments(c, f)
}

func (a *assembly) start(f readCall) error {
	switch {
	case f.Type != "" && f.Type != "function":
		return fail(Malformed, "", "tool call of type %.40q, want function", f.Type)
	case f.Function.Name == "":
		return fail(Malformed, "", "tool call has no name")
	case len(f.Function.Name) > chat.MaxNameLen || len(f.ID) > chat.MaxNameLen:
		return fail(TooLarge, "", "tool call name or ID longer than %d bytes", chat.MaxNameLen)
	case len(a.calls) == chat.MaxToolCalls:
		return fail(TooLarge, "", "more than %d tool calls", chat.MaxToolCalls)
	}
	c := &partCall{id: f.ID, name: f.Function.Name}
	a.calls = append(a.calls, c)
	if f.Index != nil {
		a.byIndex[*f.Index] = c
	}
	return a.arguments(c, f)
}

func (a *assembly) arguments(c *partCall, f readCall) error {
	s, err := argumentText(f.Function.Arguments)
	if err != nil {
		return fail(Malformed, "", "arguments of %.60q are neither a string nor an object", c.name)
	}
	c.arguments.WriteString(s)
	return nil
}

func (a *assembly) usage() chat.Usage {
	n := a.content.Len()
	for _, c := range a.calls {
		n += len(c.name) + c.arguments.Len()
	}
	return usage(a.reported, a.inBytes, n)
}

func (a *assembly) response() (chat.Response, error) {
	r := chat.Response{ID: a.id, Model: a.model, Usage: a.usage()}
	r.Message = chat.Message{Role: chat.Assistant, Text: a.content.String()}
	for i, c := range a.calls {
		if c.id == "" {
			if a.id == "" {
				return chat.Response{}, fail(Malformed, "", "tool call %.60q has no ID", c.name)
			}
			c.id = callID(a.id, i)
		}
		r.Message.ToolCalls = append(r.Message.ToolCalls, chat.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	var err error
	if r.Stop, err = stopReason(a.finish, len(a.calls)); err != nil {
		return chat.Response{}, err
	}
	if a.refused && r.Stop == chat.StopEnd {
		r.Stop = chat.StopRefused
	}
	if err := r.Check(); err != nil {
		return chat.Response{}, fail(TooLarge, "", "%v", err)
	}
	return r, nil
}
