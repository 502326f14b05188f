package completions

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/chat"
)

// ServerError is an error body in OpenAI's form.
type ServerError struct {
	Message string // one clean line of at most 512 bytes when decoded
	Type    string
	Code    string
	Param   string
	// PromptTokens and ContextTokens are the counts that some servers add when
	// the prompt doesn't fit; 0 when they don't.
	PromptTokens, ContextTokens int
}

// EncodeError writes an error body.
func EncodeError(e ServerError) []byte {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return chat.Clean(s, maxMsg)
	}
	type inner struct {
		Message string `json:"message"`
		Type    any    `json:"type"`
		Param   any    `json:"param"`
		Code    any    `json:"code"`
	}
	b, err := json.Marshal(struct {
		Error inner `json:"error"`
	}{inner{chat.Clean(e.Message, maxMsg), null(e.Type), null(e.Param), null(e.Code)}})
	if err != nil { // Clean leaves nothing that JSON can't hold
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return b
}

// HTTPStatus is the status with which a server answers e.
func (e *Error) HTTPStatus() int {
	switch e.Kind {
	case Malformed, Refused, Context:
		return 400
	case TooLarge:
		return 413
	default:
		return 502
	}
}

// Body is e as an error body.
func (e *Error) Body() []byte {
	t := "invalid_request_error"
	if e.HTTPStatus() >= 500 {
		t = "server_error"
	}
	return EncodeError(ServerError{Message: e.Error(), Type: t, Code: string(e.Kind), Param: e.Field})
}

// DecodeError reads whatever a server sends as an error: OpenAI's object, a
// plain string under "error", "message" or "detail", or text. It never fails;
// at most chat.MaxResponseBytes are looked at.
func DecodeError(body []byte) ServerError {
	body = body[:min(len(body), chat.MaxResponseBytes)]
	var m map[string]jsontext.Value
	if scan(body, chat.MaxResponseBytes) != nil || json.Unmarshal(body, &m) != nil {
		return ServerError{Message: chat.Clean(string(body), maxMsg)}
	}
	if e := m["error"]; e.Kind() == '{' {
		m = nil
		if json.Unmarshal(e, &m) != nil {
			m = nil
		}
	}
	s := ServerError{
		Type: str(m["type"]), Code: str(m["code"]), Param: str(m["param"]),
		PromptTokens: count(m["n_prompt_tokens"]), ContextTokens: count(m["n_ctx"]),
	}
	for _, k := range []string{"message", "error", "detail"} {
		if s.Message == "" {
			s.Message = str(m[k])
		}
	}
	return s
}

// ContextExceeded reports whether the server said that the prompt doesn't fit.
func (s ServerError) ContextExceeded() bool {
	return s.Code == "context_length_exceeded" || s.Type == "exceed_context_size_error" ||
		(s.PromptTokens > 0 && s.ContextTokens > 0)
}

// String is the message, with the counts or the type where there are any.
func (s ServerError) String() string {
	msg := s.Message
	if msg == "" {
		msg = "the server gave no reason"
	}
	switch {
	case s.PromptTokens > 0 && s.ContextTokens > 0:
		return chat.Clean(fmt.Sprintf("the prompt has %d tokens, the model's context %d: %s", s.PromptTokens, s.ContextTokens, msg), maxMsg)
	case s.Type != "":
		return chat.Clean(s.Type+": "+msg, maxMsg)
	default:
		return msg
	}
}

func (s ServerError) asError() *Error {
	k := Server
	if s.ContextExceeded() {
		k = Context
	}
	return &Error{Kind: k, Msg: s.String(), Code: s.Code}
}

// str is a string or a number as clean text, anything else "".
func str(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		s, err := scalar[string]("", v)
		if err != nil {
			return ""
		}
		return chat.Clean(s, maxMsg)
	case '0':
		return chat.Clean(string(v), 32)
	default:
		return ""
	}
}

func count(v jsontext.Value) int {
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 0 || n > maxTokens {
		return 0
	}
	return n
}
