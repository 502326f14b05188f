package completions

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/chat"
)

func decodeMessages(r *ServerRequest, n string, v jsontext.Value) error {
	list, err := array(n, v)
	if err != nil {
		return err
	}
	if len(list) > chat.MaxMessages {
		return fail(TooLarge, n, "%d messages, limit %d", len(list), chat.MaxMessages)
	}
	for i, e := range list {
		m, err := decodeMessage(n+"/"+strconv.Itoa(i), e)
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, m)
	}
	return nil
}

func decodeMessage(n string, v jsontext.Value) (msg chat.Message, err error) {
	m, err := object(n, v)
	if err != nil {
		return msg, err
	}
	role, err := scalar[string](n+"/role", m["role"])
	if err != nil {
		return msg, err
	}
	names := []string{"role", "content"}
	switch role {
	case "system", "developer":
		msg.Role = chat.System
	case "user":
		msg.Role = chat.User
	case "assistant":
		msg.Role, names = chat.Assistant, append(names, "tool_calls")
	case "tool":
		// Older clients repeat the tool's name; the call ID already says it.
		msg.Role, names = chat.ToolRole, append(names, "tool_call_id", "name")
	default:
		return msg, fail(Refused, n+"/role", "role %.40q is not allowed here", role)
	}
	if m, err = allow(n, v, names...); err != nil {
		return msg, err
	}
	return msg, fillMessage(&msg, n, m)
}

func fillMessage(msg *chat.Message, n string, m map[string]jsontext.Value) (err error) {
	c, hasContent := m["content"]
	if hasContent {
		if msg.Text, err = decodeContent(n+"/content", c); err != nil {
			return err
		}
	}
	if calls, ok := m["tool_calls"]; ok {
		if msg.ToolCalls, err = decodeToolCalls(n+"/tool_calls", calls); err != nil {
			return err
		}
	}
	switch {
	case msg.Role == chat.ToolRole:
		if msg.ToolCallID, err = name(n+"/tool_call_id", m["tool_call_id"]); err != nil {
			return err
		}
		if msg.ToolCallID == "" || !hasContent {
			return fail(Malformed, n, "a tool message needs tool_call_id and content")
		}
	case !hasContent && len(msg.ToolCalls) == 0:
		return fail(Malformed, n, "message has no content")
	}
	return nil
}

// decodeContent takes a string, or parts of type text, which it joins. Images,
// files, audio and URLs would make the provider fetch for the agent.
func decodeContent(n string, v jsontext.Value) (string, error) {
	if v.Kind() == '"' {
		return scalar[string](n, v)
	}
	parts, err := array(n, v)
	if err != nil {
		return "", fail(Malformed, n, "want a string or an array of text parts")
	}
	var b strings.Builder
	for i, p := range parts {
		pn := n + "/" + strconv.Itoa(i)
		m, err := object(pn, p)
		if err != nil {
			return "", err
		}
		if t, err := scalar[string](pn+"/type", m["type"]); err != nil || t != "text" {
			return "", fail(Refused, pn+"/type", "only text parts are allowed here, not %.40q", t)
		}
		if _, err := allow(pn, p, "type", "text"); err != nil {
			return "", err
		}
		s, err := scalar[string](pn+"/text", m["text"])
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func decodeToolCalls(n string, v jsontext.Value) ([]chat.ToolCall, error) {
	list, err := array(n, v)
	if err != nil {
		return nil, err
	}
	if len(list) > chat.MaxToolCalls {
		return nil, fail(TooLarge, n, "%d tool calls, limit %d", len(list), chat.MaxToolCalls)
	}
	var calls []chat.ToolCall
	for i, e := range list {
		c, err := decodeToolCall(n+"/"+strconv.Itoa(i), e)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

func decodeToolCall(n string, v jsontext.Value) (c chat.ToolCall, err error) {
	m, err := allow(n, v, "id", "type", "function", "index")
	if err != nil {
		return c, err
	}
	if err := functionType(n, m); err != nil {
		return c, err
	}
	if c.ID, err = name(n+"/id", m["id"]); err != nil {
		return c, err
	}
	f, err := allow(n+"/function", m["function"], "name", "arguments")
	if err != nil {
		return c, err
	}
	if c.Name, err = name(n+"/function/name", f["name"]); err != nil {
		return c, err
	}
	if c.ID == "" || c.Name == "" {
		return c, fail(Malformed, n, "a tool call needs an id and a name")
	}
	c.Arguments, err = scalar[string](n+"/function/arguments", f["arguments"])
	return c, err
}
