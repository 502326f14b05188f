package completions

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/chat"
)

// What servers send, as loosely as they send it: unknown members are ignored,
// and every member may be missing or null.
type (
	readResponse struct {
		ID      string         `json:"id"`
		Model   string         `json:"model"`
		Choices []readChoice   `json:"choices"`
		Usage   *readUsage     `json:"usage"`
		Error   jsontext.Value `json:"error"`
	}
	readChoice struct {
		Index        *int        `json:"index"`
		Message      readMessage `json:"message"`
		Delta        readMessage `json:"delta"`
		FinishReason string      `json:"finish_reason"`
	}
	readMessage struct {
		Role      string         `json:"role"`
		Content   jsontext.Value `json:"content"`
		Refusal   string         `json:"refusal"`
		ToolCalls []readCall     `json:"tool_calls"`
	}
	readCall struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string         `json:"name"`
			Arguments jsontext.Value `json:"arguments"`
		} `json:"function"`
	}
	readUsage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
)

// maxTokens bounds a token count that we believe; beyond it a server talks
// nonsense and we count for it.
const maxTokens = 1 << 30

// DecodeResponse reads a server's whole response. requestBytes is the size of
// the encoded request, from which missing input tokens are estimated. Errors are
// *Error of kind Malformed, TooLarge, Server or Context.
func DecodeResponse(body []byte, requestBytes int) (chat.Response, error) {
	var out chat.Response
	r, err := decodeReply(body)
	if err != nil {
		return out, err
	}
	if len(r.Choices) != 1 {
		return out, fail(Malformed, "", "response has %d choices, want 1", len(r.Choices))
	}
	a := newAssembly(requestBytes, nil)
	a.head(r)
	c := r.Choices[0]
	if err := a.text(c.Message); err != nil {
		return out, err
	}
	for _, t := range c.Message.ToolCalls {
		// A whole call stands for itself, whatever its index says.
		if err := a.start(t); err != nil {
			return out, err
		}
	}
	a.finish = c.FinishReason
	return a.response()
}

// decodeReply parses a body or an event and turns an error object in it into
// an error.
func decodeReply(body []byte) (readResponse, error) {
	var r readResponse
	if err := scan(body, chat.MaxResponseBytes); err != nil {
		return r, err
	}
	if jsontext.Value(body).Kind() != '{' {
		return r, fail(Malformed, "", "response is not an object")
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fail(Malformed, "", "parse response: %v", err)
	}
	if len(r.Error) > 0 && r.Error.Kind() != 'n' {
		return r, DecodeError(body).asError()
	}
	if i := badIndex(r.Choices); i >= 0 {
		return r, fail(Malformed, "", "choice has index %d, want 0", *r.Choices[i].Index)
	}
	return r, nil
}

func badIndex(cs []readChoice) int {
	for i, c := range cs {
		if c.Index != nil && *c.Index != 0 {
			return i
		}
	}
	return -1
}

func decodeText(v jsontext.Value) (string, error) {
	if len(v) == 0 || v.Kind() == 'n' {
		return "", nil
	}
	s, err := decodeContent("", v)
	if err != nil {
		return "", fail(Malformed, "", "response content is neither text nor text parts")
	}
	return s, nil
}

// argumentText takes a string, as the protocol has it, or an object, as some
// servers send it.
func argumentText(v jsontext.Value) (string, error) {
	switch {
	case len(v) == 0 || v.Kind() == 'n':
		return "", nil
	case v.Kind() == '{':
		return string(v), nil
	default:
		return scalar[string]("", v)
	}
}

// stopReason trusts what came over what the server says about it: several
// servers finish a turn of tool calls with "stop".
func stopReason(finish string, calls int) (chat.StopReason, error) {
	switch finish {
	case "length":
		return chat.StopLength, nil
	case "content_filter":
		return chat.StopRefused, nil
	case "", "stop", "tool_calls", "function_call":
	default:
		return "", fail(Malformed, "", "unknown finish reason %.40q", finish)
	}
	if calls > 0 {
		return chat.StopToolCalls, nil
	}
	if finish == "tool_calls" || finish == "function_call" {
		return "", fail(Malformed, "", "finish reason %q without tool calls", finish)
	}
	return chat.StopEnd, nil
}

// usage completes what the server reported. A count that is missing, negative,
// beyond belief, or zero where there was something to count is estimated.
func usage(u *readUsage, inBytes, outBytes int) chat.Usage {
	var r chat.Usage
	if u != nil {
		r = chat.Usage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens}
	}
	fix := func(n *int, bytes int) {
		if *n < 0 || *n > maxTokens || (*n == 0 && bytes > 0) || u == nil {
			*n, r.Estimated = EstimateTokens(bytes), true
		}
	}
	fix(&r.InputTokens, inBytes)
	fix(&r.OutputTokens, outBytes)
	return r
}

// EstimateTokens is the documented stand-in for a missing count: a quarter of
// the bytes, rounded up.
func EstimateTokens(bytes int) int { return (bytes + 3) / 4 }

// callID names a call whose server gave it none, unique while response IDs are.
func callID(response string, n int) string {
	s := strconv.Itoa(n)
	return response[:min(len(response), chat.MaxNameLen-len(s)-1)] + "-" + s
}
