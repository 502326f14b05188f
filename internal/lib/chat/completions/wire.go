package completions

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/chat"
)

// The wire's objects as we write them. What we read is looser: see response.go.
type (
	wireRequest struct {
		Model             string          `json:"model,omitzero"`
		Messages          []wireMessage   `json:"messages"`
		Tools             []wireTool      `json:"tools,omitempty"`
		ToolChoice        chat.ToolChoice `json:"tool_choice,omitzero"`
		ParallelToolCalls *bool           `json:"parallel_tool_calls,omitzero"`
		MaxTokens         int             `json:"max_tokens"`
		Stream            bool            `json:"stream,omitzero"`
		StreamOptions     *wireOptions    `json:"stream_options,omitzero"`
		Temperature       *float64        `json:"temperature,omitzero"`
		TopP              *float64        `json:"top_p,omitzero"`
		Seed              *int64          `json:"seed,omitzero"`
		Stop              []string        `json:"stop,omitempty"`
	}
	wireOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	wireTool struct {
		Type     string      `json:"type"`
		Function wireToolDef `json:"function"`
	}
	wireToolDef struct {
		Name        string         `json:"name"`
		Description string         `json:"description,omitzero"`
		Parameters  jsontext.Value `json:"parameters"`
	}
	wireMessage struct {
		Role       string     `json:"role,omitzero"`
		Content    *string    `json:"content"`
		ToolCalls  []wireCall `json:"tool_calls,omitempty"`
		ToolCallID string     `json:"tool_call_id,omitzero"`
	}
	wireCall struct {
		Index    *int         `json:"index,omitzero"`
		ID       string       `json:"id,omitzero"`
		Type     string       `json:"type,omitzero"`
		Function wireFunction `json:"function"`
	}
	wireFunction struct {
		Name      string `json:"name,omitzero"`
		Arguments string `json:"arguments"`
	}
	wireResponse struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"`
		Created int64        `json:"created"`
		Model   string       `json:"model"`
		Choices []wireChoice `json:"choices"`
		Usage   *wireUsage   `json:"usage,omitzero"`
	}
	wireChoice struct {
		Index        int          `json:"index"`
		Message      *wireMessage `json:"message,omitzero"`
		Delta        *wireDelta   `json:"delta,omitzero"`
		FinishReason *string      `json:"finish_reason"`
	}
	wireDelta struct {
		Role      string     `json:"role,omitzero"`
		Content   string     `json:"content,omitzero"`
		ToolCalls []wireCall `json:"tool_calls,omitempty"`
	}
	wireUsage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
)

// EncodeRequest writes a request for a server. A streamed request asks for the
// usage chunk. Errors are *Error: a limit of chat, a schema that is not JSON, or
// text that is not UTF-8 (never changed silently).
func EncodeRequest(r chat.Request) ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, fail(TooLarge, "", "encode request: %v", err)
	}
	w := wireRequest{
		Model: r.Model, ToolChoice: r.ToolChoice, ParallelToolCalls: r.ParallelToolCalls,
		MaxTokens: r.MaxOutputTokens, Stream: r.Stream,
	}
	if r.Stream {
		w.StreamOptions = &wireOptions{IncludeUsage: true}
	}
	if s := r.Sampling; s != nil {
		w.Temperature, w.TopP, w.Seed, w.Stop = s.Temperature, s.TopP, s.Seed, s.Stop
	}
	for _, m := range r.Messages {
		w.Messages = append(w.Messages, encodeMessage(m))
	}
	for _, t := range r.Tools {
		w.Tools = append(w.Tools, wireTool{Type: "function", Function: wireToolDef{
			Name: t.Name, Description: t.Description, Parameters: jsontext.Value(t.Schema),
		}})
	}
	return marshal(w, chat.MaxRequestBytes)
}

func encodeMessage(m chat.Message) wireMessage {
	w := wireMessage{Role: string(m.Role), Content: &m.Text, ToolCallID: m.ToolCallID}
	if m.Text == "" && len(m.ToolCalls) > 0 {
		w.Content = nil
	}
	for _, c := range m.ToolCalls {
		w.ToolCalls = append(w.ToolCalls, encodeCall(c, nil))
	}
	return w
}

func encodeCall(c chat.ToolCall, index *int) wireCall {
	return wireCall{Index: index, ID: c.ID, Type: "function", Function: wireFunction{Name: c.Name, Arguments: c.Arguments}}
}

// EncodeResponse writes a whole response; created is in Unix seconds.
func EncodeResponse(r chat.Response, created int64) ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, fail(TooLarge, "", "encode response: %v", err)
	}
	m := encodeMessage(r.Message)
	f := finishReason(r.Stop)
	return marshal(wireResponse{
		ID: r.ID, Object: "chat.completion", Created: created, Model: r.Model,
		Choices: []wireChoice{{Message: &m, FinishReason: &f}}, Usage: encodeUsage(r.Usage),
	}, chat.MaxResponseBytes)
}

func encodeUsage(u chat.Usage) *wireUsage {
	return &wireUsage{PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.Total()}
}

func finishReason(s chat.StopReason) string {
	switch s {
	case chat.StopToolCalls:
		return "tool_calls"
	case chat.StopLength:
		return "length"
	case chat.StopRefused:
		return "content_filter"
	default:
		return "stop"
	}
}

func marshal(v any, limit int) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fail(Malformed, "", "encode json: %v", err)
	}
	if len(b) > limit {
		return nil, fail(TooLarge, "", "encoded body has %d bytes, limit %d", len(b), limit)
	}
	return b, nil
}
