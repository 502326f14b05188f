package completions

import (
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/chat"
)

// ServerRequest is a client's request as the server side sees it.
type ServerRequest struct {
	// Request has MaxOutputTokens 0 when the client named no limit: the caller
	// sets its own cap, then calls Check.
	chat.Request
	// IncludeUsage is stream_options.include_usage.
	IncludeUsage bool
	maxTokens    [2]int // max_tokens, max_completion_tokens
}

// field decodes one allowed member into r.
type field func(r *ServerRequest, name string, v jsontext.Value) error

// requestFields is the allow list of the top level. Anything else is refused:
// hosted tools, store, background, files and the like make the provider act for
// the agent outside the gate. A map built by a function, because the decoders
// below refer to each other.
func requestFields() map[string]field {
	return map[string]field{
		"model":                 func(r *ServerRequest, n string, v jsontext.Value) (err error) { r.Model, err = name(n, v); return },
		"messages":              decodeMessages,
		"tools":                 decodeTools,
		"tool_choice":           decodeToolChoice,
		"parallel_tool_calls":   pointer(func(r *ServerRequest, b *bool) { r.ParallelToolCalls = b }),
		"max_tokens":            func(r *ServerRequest, n string, v jsontext.Value) error { return r.limit(0, n, v) },
		"max_completion_tokens": func(r *ServerRequest, n string, v jsontext.Value) error { return r.limit(1, n, v) },
		"stream": func(r *ServerRequest, n string, v jsontext.Value) (err error) {
			r.Stream, err = scalar[bool](n, v)
			return
		},
		"stream_options":  decodeStreamOptions,
		"temperature":     pointer(func(r *ServerRequest, f *float64) { r.sampling().Temperature = f }),
		"top_p":           pointer(func(r *ServerRequest, f *float64) { r.sampling().TopP = f }),
		"seed":            pointer(func(r *ServerRequest, i *int64) { r.sampling().Seed = i }),
		"stop":            decodeStop,
		"n":               only[int](1),
		"store":           only(false),
		"logprobs":        only(false),
		"response_format": decodeResponseFormat,
	}
}

// DecodeRequest reads a client's request by the allow list. Errors are *Error
// of kind Malformed, TooLarge or Refused and name the field.
func DecodeRequest(body []byte) (ServerRequest, error) {
	var r ServerRequest
	if err := scan(body, chat.MaxRequestBytes); err != nil {
		return r, err
	}
	m, err := object("", jsontext.Value(body))
	if err != nil {
		return r, err
	}
	allowed := requestFields()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		decode, ok := allowed[k]
		if !ok {
			return r, fail(Refused, "/"+k, "field is not allowed here")
		}
		if err := decode(&r, "/"+k, m[k]); err != nil {
			return r, err
		}
	}
	return r, r.finish()
}

// finish checks what needs more than one field.
func (r *ServerRequest) finish() error {
	a, b := r.maxTokens[0], r.maxTokens[1]
	if a != 0 && b != 0 && a != b {
		return fail(Malformed, "/max_tokens", "differs from max_completion_tokens")
	}
	r.MaxOutputTokens = max(a, b)
	if r.IncludeUsage && !r.Stream {
		return fail(Malformed, "/stream_options", "only with stream")
	}
	c := r.Request
	c.MaxOutputTokens = max(c.MaxOutputTokens, 1)
	if err := c.Check(); err != nil {
		return fail(Malformed, "", "%v", err)
	}
	return nil
}

func (r *ServerRequest) sampling() *chat.Sampling {
	if r.Sampling == nil {
		r.Sampling = &chat.Sampling{}
	}
	return r.Sampling
}

func (r *ServerRequest) limit(i int, n string, v jsontext.Value) (err error) {
	if r.maxTokens[i], err = scalar[int](n, v); err == nil && r.maxTokens[i] < 1 {
		return fail(Malformed, n, "want 1 or more")
	}
	return err
}

func name(n string, v jsontext.Value) (string, error) {
	s, err := scalar[string](n, v)
	if err == nil && len(s) > chat.MaxNameLen {
		return "", fail(TooLarge, n, "longer than %d bytes", chat.MaxNameLen)
	}
	return s, err
}

func pointer[T any](set func(*ServerRequest, *T)) field {
	return func(r *ServerRequest, n string, v jsontext.Value) error {
		t, err := scalar[T](n, v)
		if err == nil {
			set(r, &t)
		}
		return err
	}
}

// only allows the one value that asks for nothing more than we do.
func only[T comparable](want T) field {
	return func(_ *ServerRequest, n string, v jsontext.Value) error {
		got, err := scalar[T](n, v)
		if err == nil && got != want {
			return fail(Refused, n, "only %v is allowed here", want)
		}
		return err
	}
}

func decodeToolChoice(r *ServerRequest, n string, v jsontext.Value) error {
	if v.Kind() != '"' {
		return fail(Refused, n, "only auto, none and required are allowed here")
	}
	s, err := scalar[string](n, v)
	if err != nil {
		return err
	}
	switch c := chat.ToolChoice(s); c {
	case chat.ChooseAuto, chat.ChooseNone, chat.ChooseRequired:
		r.ToolChoice = c
		return nil
	default:
		return fail(Refused, n, "only auto, none and required are allowed here")
	}
}

func decodeStreamOptions(r *ServerRequest, n string, v jsontext.Value) error {
	m, err := allow(n, v, "include_usage")
	if err != nil {
		return err
	}
	if u, ok := m["include_usage"]; ok {
		r.IncludeUsage, err = scalar[bool](n+"/include_usage", u)
	}
	return err
}

func decodeStop(r *ServerRequest, n string, v jsontext.Value) error {
	if v.Kind() == '"' {
		s, err := scalar[string](n, v)
		r.sampling().Stop = []string{s}
		return err
	}
	a, err := scalar[[]string](n, v)
	if len(a) > 0 {
		r.sampling().Stop = a
	}
	return err
}

func decodeResponseFormat(_ *ServerRequest, n string, v jsontext.Value) error {
	m, err := allow(n, v, "type")
	if err != nil {
		return err
	}
	if t, _ := scalar[string](n, m["type"]); t != "text" {
		return fail(Refused, n+"/type", "only text is allowed here")
	}
	return nil
}

// allow is object with an allow list of members.
func allow(n string, v jsontext.Value, names ...string) (map[string]jsontext.Value, error) {
	m, err := object(n, v)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names, k) {
			return nil, fail(Refused, n+"/"+k, "field is not allowed here")
		}
	}
	return m, nil
}

func decodeTools(r *ServerRequest, n string, v jsontext.Value) error {
	list, err := array(n, v)
	if err != nil {
		return err
	}
	if len(list) > chat.MaxTools {
		return fail(TooLarge, n, "%d tools, limit %d", len(list), chat.MaxTools)
	}
	for i, e := range list {
		t, err := decodeTool(n+"/"+strconv.Itoa(i), e)
		if err != nil {
			return err
		}
		r.Tools = append(r.Tools, t)
	}
	return nil
}

func decodeTool(n string, v jsontext.Value) (t chat.Tool, err error) {
	m, err := object(n, v)
	if err != nil {
		return t, err
	}
	// The type first: a hosted tool is refused as that, not for its fields.
	if err := functionType(n, m); err != nil {
		return t, err
	}
	if _, err := allow(n, v, "type", "function"); err != nil {
		return t, err
	}
	f, err := allow(n+"/function", m["function"], "name", "description", "parameters", "strict")
	if err != nil {
		return t, err
	}
	if t.Name, err = name(n+"/function/name", f["name"]); err != nil {
		return t, err
	}
	if d, ok := f["description"]; ok {
		if t.Description, err = scalar[string](n+"/function/description", d); err != nil {
			return t, err
		}
	}
	if s, ok := f["strict"]; ok { // a hint to the sampler; the gate checks arguments anyway
		if _, err = scalar[bool](n+"/function/strict", s); err != nil {
			return t, err
		}
	}
	t.Schema = []byte(`{"type":"object","properties":{}}`)
	if p, ok := f["parameters"]; ok {
		if p.Kind() != '{' {
			return t, fail(Malformed, n+"/function/parameters", "want an object")
		}
		t.Schema = []byte(p.Clone())
	}
	return t, nil
}

func functionType(n string, m map[string]jsontext.Value) error {
	t, err := scalar[string](n+"/type", m["type"])
	if err != nil {
		return err
	}
	if t != "function" {
		return fail(Refused, n+"/type", "%.60q is not allowed here, only function", t)
	}
	return nil
}
