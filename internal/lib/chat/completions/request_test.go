package completions

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentos/internal/lib/chat"
)

func ptr[T any](v T) *T { return &v }

// fullRequest uses every part of chat.Request.
func fullRequest() chat.Request {
	return chat.Request{
		Model: "m", MaxOutputTokens: 64, Stream: true,
		ToolChoice: chat.ChooseRequired, ParallelToolCalls: ptr(false),
		Sampling: &chat.Sampling{Temperature: ptr(0.5), TopP: ptr(0.9), Seed: ptr(int64(7)), Stop: []string{"END"}},
		Messages: []chat.Message{
			{Role: chat.System, Text: "be brief"},
			{Role: chat.User, Text: "héllo \u2028 <&>"},
			{Role: chat.Assistant, ToolCalls: []chat.ToolCall{{ID: "c1", Name: "t", Arguments: `{"a": "<tool_call> }"}`}}},
			{Role: chat.ToolRole, ToolCallID: "c1", Text: `{"status":"ok"}`},
			{Role: chat.Assistant, Text: "and", ToolCalls: []chat.ToolCall{{ID: "c2", Name: "t", Arguments: "not json"}}},
		},
		Tools: []chat.Tool{{Name: "t", Description: "d", Schema: []byte(`{"type":"object"}`)}},
	}
}

func TestRequestRoundTrip(t *testing.T) {
	t.Parallel()
	want := fullRequest()
	b, err := EncodeRequest(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.Request); d != "" {
		t.Errorf("round trip (-want +got):\n%s", d)
	}
	if !got.IncludeUsage {
		t.Error("a streamed request does not ask for its usage")
	}
}

func TestDecodeRequestAccepts(t *testing.T) {
	t.Parallel()
	user := []chat.Message{{Role: chat.User, Text: "hi"}}
	const msgs = `"messages":[{"role":"user","content":"hi"}]`
	tests := map[string]struct {
		body string
		want chat.Request
	}{
		"least":              {`{` + msgs + `}`, chat.Request{Messages: user}},
		"nulls are absent":   {`{` + msgs + `,"store":null,"audio":null,"web_search_options":null}`, chat.Request{Messages: user}},
		"harmless values":    {`{` + msgs + `,"n":1,"store":false,"logprobs":false,"response_format":{"type":"text"}}`, chat.Request{Messages: user}},
		"newer limit":        {`{` + msgs + `,"max_completion_tokens":5}`, chat.Request{Messages: user, MaxOutputTokens: 5}},
		"both limits, equal": {`{` + msgs + `,"max_tokens":5,"max_completion_tokens":5}`, chat.Request{Messages: user, MaxOutputTokens: 5}},
		"one stop":           {`{` + msgs + `,"stop":"x"}`, chat.Request{Messages: user, Sampling: &chat.Sampling{Stop: []string{"x"}}}},
		"text parts": {`{"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			chat.Request{Messages: []chat.Message{{Role: chat.System, Text: "ab"}}}},
		"named tool message, null assistant": {`{"messages":[{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]},{"role":"tool","name":"t","tool_call_id":"c","content":""}]}`,
			chat.Request{Messages: []chat.Message{
				{Role: chat.Assistant, ToolCalls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: "{}"}}}, {Role: chat.ToolRole, ToolCallID: "c"}}}},
		"tool without parameters": {`{` + msgs + `,"tools":[{"type":"function","function":{"name":"t","strict":true}}]}`,
			chat.Request{Messages: user, Tools: []chat.Tool{{Name: "t", Schema: []byte(`{"type":"object","properties":{}}`)}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeRequest([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got.Request, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeRequestRefuses(t *testing.T) {
	t.Parallel()
	const msgs = `"messages":[{"role":"user","content":"hi"}]`
	part := func(p string) string { return `{"messages":[{"role":"user","content":[` + p + `]}]}` }
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	tests := map[string]struct {
		body  string
		kind  Kind
		field string
	}{
		"empty":               {``, Malformed, ""},
		"not json":            {`{`, Malformed, ""},
		"two documents":       {`{` + msgs + `}{}`, Malformed, ""},
		"array":               {`[]`, Malformed, ""},
		"no messages":         {`{"model":"m"}`, Malformed, ""},
		"duplicate name":      {`{` + msgs + `,"model":"a","model":"b"}`, Malformed, ""},
		"duplicate in schema": {`{` + msgs + `,"tools":[{"type":"function","function":{"name":"t","parameters":{"a":1,"a":2}}}]}`, Malformed, ""},
		"not utf-8":           {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", Malformed, ""},
		"too deep":            {`{"messages":` + deep + `}`, TooLarge, ""},
		"too large":           {`{` + msgs + `,"x":"` + strings.Repeat("a", chat.MaxRequestBytes) + `"}`, TooLarge, ""},
		"web search":          {`{` + msgs + `,"web_search_options":{}}`, Refused, "/web_search_options"},
		"store":               {`{` + msgs + `,"store":true}`, Refused, "/store"},
		"background":          {`{` + msgs + `,"background":true}`, Refused, "/background"},
		"metadata":            {`{` + msgs + `,"metadata":{}}`, Refused, "/metadata"},
		"several answers":     {`{` + msgs + `,"n":2}`, Refused, "/n"},
		"json answers":        {`{` + msgs + `,"response_format":{"type":"json_object"}}`, Refused, "/response_format/type"},
		"hosted tool":         {`{` + msgs + `,"tools":[{"type":"web_search","user_location":{}}]}`, Refused, "/tools/0/type"},
		"mcp tool":            {`{` + msgs + `,"tools":[{"type":"mcp","server_url":"https://x"}]}`, Refused, "/tools/0/type"},
		"named tool choice":   {`{` + msgs + `,"tool_choice":{"type":"function","function":{"name":"t"}}}`, Refused, "/tool_choice"},
		"odd tool choice":     {`{` + msgs + `,"tool_choice":"always"}`, Refused, "/tool_choice"},
		"extra function key":  {`{` + msgs + `,"tools":[{"type":"function","function":{"name":"t","url":"x"}}]}`, Refused, "/tools/0/function/url"},
		"stream obfuscation":  {`{` + msgs + `,"stream":true,"stream_options":{"include_obfuscation":true}}`, Refused, "/stream_options/include_obfuscation"},
		"image":               {part(`{"type":"image_url","image_url":{"url":"https://x"}}`), Refused, "/messages/0/content/0/type"},
		"file":                {part(`{"type":"file","file":{"file_id":"x"}}`), Refused, "/messages/0/content/0/type"},
		"audio":               {part(`{"type":"input_audio","input_audio":{}}`), Refused, "/messages/0/content/0/type"},
		"text part with more": {part(`{"type":"text","text":"a","image_url":"x"}`), Refused, "/messages/0/content/0/image_url"},
		"function role":       {`{"messages":[{"role":"function","content":"x"}]}`, Refused, "/messages/0/role"},
		"user with calls":     {`{"messages":[{"role":"user","content":"x","tool_calls":[]}]}`, Refused, "/messages/0/tool_calls"},
		"tool without id":     {`{"messages":[{"role":"tool","content":"x"}]}`, Malformed, "/messages/0/tool_call_id"},
		"empty message":       {`{"messages":[{"role":"user"}]}`, Malformed, "/messages/0"},
		"custom call":         {`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{}}]}]}`, Refused, "/messages/0/tool_calls/0/custom"},
		"nameless call":       {`{"messages":[{"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"t","arguments":""}}]}]}`, Malformed, "/messages/0/tool_calls/0"},
		"zero limit":          {`{` + msgs + `,"max_tokens":0}`, Malformed, "/max_tokens"},
		"limits differ":       {`{` + msgs + `,"max_tokens":1,"max_completion_tokens":2}`, Malformed, "/max_tokens"},
		"hot":                 {`{` + msgs + `,"temperature":99}`, Malformed, ""},
		"wrong type":          {`{` + msgs + `,"stream":"yes"}`, Malformed, "/stream"},
		"usage, no stream":    {`{` + msgs + `,"stream_options":{"include_usage":true}}`, Malformed, "/stream_options"},
		"long name":           {`{` + msgs + `,"model":"` + strings.Repeat("m", 200) + `"}`, TooLarge, "/model"},
		"Case matters":        {`{` + msgs + `,"Model":"m"}`, Refused, "/Model"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := DecodeRequest([]byte(tt.body))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is no *Error", err)
			}
			if e.Kind != tt.kind || e.Field != tt.field {
				t.Errorf("%s at %q, want %s at %q (%v)", e.Kind, e.Field, tt.kind, tt.field, e)
			}
		})
	}
}

func TestEncodeRequestRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*chat.Request){
		"bad schema":     func(r *chat.Request) { r.Tools[0].Schema = []byte(`{`) },
		"not utf-8":      func(r *chat.Request) { r.Messages[0].Text = "\xff" },
		"no limit":       func(r *chat.Request) { r.MaxOutputTokens = 0 },
		"unnamed tool":   func(r *chat.Request) { r.Tools[0].Name = "" },
		"too many stops": func(r *chat.Request) { r.Sampling.Stop = make([]string, chat.MaxStops+1) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fullRequest()
			spoil(&r)
			if b, err := EncodeRequest(r); err == nil {
				t.Errorf("encoded %s", b)
			}
		})
	}
}

// The spec page lists the allow list.
func TestSpecPageListsFields(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/spec/chat-completions.md")
	if err != nil {
		t.Fatal(err)
	}
	for f := range requestFields() {
		if !strings.Contains(string(page), "| `"+f+"` |") {
			t.Errorf("docs/spec/chat-completions.md has no row for %q", f)
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	b, _ := EncodeRequest(fullRequest())
	f.Add(b)
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeRequest(body)
		if err != nil {
			if KindOf(err) == "" {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		r.MaxOutputTokens = max(r.MaxOutputTokens, 1)
		out, err := EncodeRequest(r.Request)
		if err != nil {
			if KindOf(err) == TooLarge { // escapes may grow
				return
			}
			t.Fatalf("accepted request does not encode: %v", err)
		}
		again, err := DecodeRequest(out)
		if err != nil {
			t.Fatalf("own encoding refused: %v", err)
		}
		opt := cmp.Transformer("schema", func(t chat.Tool) string { return t.Name + t.Description })
		if d := cmp.Diff(r.Request, again.Request, cmpopts.EquateEmpty(), opt); d != "" {
			t.Fatalf("round trip:\n%s", d)
		}
	})
}
