package completions

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentos/internal/lib/chat"
)

func fullResponse() chat.Response {
	return chat.Response{
		ID: "r1", Model: "m", Stop: chat.StopToolCalls, Usage: chat.Usage{InputTokens: 3, OutputTokens: 4},
		Message: chat.Message{Role: chat.Assistant, Text: "let me see ☃", ToolCalls: []chat.ToolCall{
			{ID: "a", Name: "t", Arguments: `{"x": " </tool_call> \n"}`}, {ID: "b", Name: "u", Arguments: ""}}},
	}
}

func TestResponseRoundTrip(t *testing.T) {
	t.Parallel()
	for _, stop := range []chat.StopReason{chat.StopToolCalls, chat.StopEnd, chat.StopLength, chat.StopRefused} {
		want := fullResponse()
		want.Stop = stop
		if stop == chat.StopEnd {
			want.Message.ToolCalls = nil
		}
		b, err := EncodeResponse(want, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeResponse(b, 99)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("whole, %s (-want +got):\n%s", stop, d)
		}
		var s bytes.Buffer
		w := NewStreamWriter(&s, "r1", "m", 1, true)
		if err := errors.Join(w.Text("let "), w.Finish(want)); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		got, err = ReadStream(iotest.OneByteReader(&s), 99, func(d string) { text.WriteString(d) })
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("streamed, %s (-want +got):\n%s", stop, d)
		}
		if text.String() != want.Message.Text {
			t.Errorf("sink got %q", text.String())
		}
	}
}

func TestDecodeResponse(t *testing.T) {
	t.Parallel()
	call := func(args string) []chat.ToolCall { return []chat.ToolCall{{ID: "c", Name: "t", Arguments: args}} }
	const callJSON = `{"id":"c","function":{"name":"t","arguments":"{}"}}`
	tests := map[string]struct {
		body string
		want chat.Response
		kind Kind
	}{
		"no usage, index, created, id": {body: `{"choices":[{"message":{"content":"hello"}}]}`,
			want: chat.Response{Message: chat.Message{Text: "hello"}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 3, OutputTokens: 2, Estimated: true}}},
		"negative usage": {body: `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":-4000000,"completion_tokens":1}}`,
			want: chat.Response{Message: chat.Message{Text: "hello"}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 3, OutputTokens: 1, Estimated: true}}},
		"zero usage": {body: `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}`,
			want: chat.Response{Message: chat.Message{Text: "hello"}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 9, OutputTokens: 2, Estimated: true}}},
		"stop with calls": {body: `{"choices":[{"finish_reason":"stop","message":{"content":null,"tool_calls":[` + callJSON + `]}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
			want: chat.Response{Message: chat.Message{ToolCalls: call("{}")}, Stop: chat.StopToolCalls, Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}},
		"object arguments": {body: `{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"t","arguments":{"a":1}}}]}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
			want: chat.Response{Message: chat.Message{ToolCalls: call(`{"a":1}`)}, Stop: chat.StopToolCalls, Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}},
		"refusal": {body: `{"choices":[{"finish_reason":"stop","message":{"refusal":"no"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
			want: chat.Response{Message: chat.Message{Text: "no"}, Stop: chat.StopRefused, Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}},
		"call id from response": {body: `{"id":"r","choices":[{"message":{"tool_calls":[{"function":{"name":"t","arguments":""}}]}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
			want: chat.Response{ID: "r", Message: chat.Message{ToolCalls: []chat.ToolCall{{ID: "r-0", Name: "t"}}}, Stop: chat.StopToolCalls, Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}},
		"same index twice": {body: `{"choices":[{"message":{"tool_calls":[{"index":0,"id":"c","function":{"name":"t","arguments":"1"}},{"index":0,"id":"d","function":{"name":"t","arguments":"2"}}]}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
			want: chat.Response{Message: chat.Message{ToolCalls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: "1"}, {ID: "d", Name: "t", Arguments: "2"}}}, Stop: chat.StopToolCalls, Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}},

		"html":               {body: `<html>`, kind: Malformed},
		"array":              {body: `[]`, kind: Malformed},
		"no choices":         {body: `{"choices":[]}`, kind: Malformed},
		"two choices":        {body: `{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}}]}`, kind: Malformed},
		"odd finish":         {body: `{"choices":[{"finish_reason":"maybe","message":{"content":"a"}}]}`, kind: Malformed},
		"calls without call": {body: `{"choices":[{"finish_reason":"tool_calls","message":{"content":"a"}}]}`, kind: Malformed},
		"user role":          {body: `{"choices":[{"message":{"role":"user","content":"a"}}]}`, kind: Malformed},
		"image content":      {body: `{"choices":[{"message":{"content":[{"type":"image_url"}]}}]}`, kind: Malformed},
		"nameless call":      {body: `{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"arguments":"{}"}}]}}]}`, kind: Malformed},
		"nothing to name it": {body: `{"choices":[{"message":{"tool_calls":[{"function":{"name":"t","arguments":"{}"}}]}}]}`, kind: Malformed},
		"array arguments":    {body: `{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"t","arguments":[1]}}]}}]}`, kind: Malformed},
		"custom call":        {body: `{"choices":[{"message":{"tool_calls":[{"id":"c","type":"custom","function":{"name":"t"}}]}}]}`, kind: Malformed},
		"many calls":         {body: `{"choices":[{"message":{"tool_calls":[` + strings.Repeat(callJSON+",", chat.MaxToolCalls) + callJSON + `]}}]}`, kind: TooLarge},
		"long arguments":     {body: `{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"t","arguments":"` + strings.Repeat("a", chat.MaxArguments+1) + `"}}]}}]}`, kind: TooLarge},
		"long text":          {body: `{"choices":[{"message":{"content":"` + strings.Repeat("a", chat.MaxText+1) + `"}}]}`, kind: TooLarge},
		"huge":               {body: strings.Repeat(" ", chat.MaxResponseBytes+1), kind: TooLarge},
		"deep":               {body: `{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, kind: TooLarge},
		"error in a 200":     {body: `{"error":{"message":"boom"}}`, kind: Server},
		"context in a 200":   {body: `{"error":{"message":"boom","n_prompt_tokens":9,"n_ctx":8}}`, kind: Context},
		"string error":       {body: `{"error":"boom"}`, kind: Server},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeResponse([]byte(tt.body), 9)
			if KindOf(err) != tt.kind {
				t.Fatalf("error %v, want kind %q", err, tt.kind)
			}
			if err != nil {
				return
			}
			tt.want.Message.Role = chat.Assistant
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// chunk is one event whose delta has the given members.
func chunk(delta string) string {
	return `data: {"id":"r","choices":[{"delta":{` + delta + `}}]}` + "\n\n"
}

func calls(list string) string { return chunk(`"tool_calls":[` + list + `]`) }

const (
	finish = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

func TestReadStream(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stream string
		text   string
		calls  []chat.ToolCall
		kind   Kind
		stop   chat.StopReason
	}{
		"text": {stream: ": hello\n\n" + chunk(`"role":"assistant","content":""`) + chunk(`"content":"a "`) + chunk(`"content":"b"`) + finish + done, text: "a b"},
		"byte order mark, carriage returns, no spaces": {stream: "\ufeff" + strings.ReplaceAll(strings.ReplaceAll(chunk(`"content":"a"`)+finish+done, "data: ", "data:"), "\n", "\r\n"), text: "a"},
		"data in two lines":                            {stream: "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"a\"}}]}\n\n" + finish, text: "a"},
		"finish without done":                          {stream: chunk(`"content":"a"`) + finish, text: "a"},
		"done without finish":                          {stream: chunk(`"content":"a"`) + done, text: "a"},
		"done without blank line":                      {stream: chunk(`"content":"a"`) + "data: [DONE]", text: "a"},
		"finish with the last text, no blank line":     {stream: `data: {"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`, text: "a", stop: chat.StopLength},
		"after done nothing counts":                    {stream: chunk(`"content":"a"`) + done + "data: {{{{", text: "a"},
		"fragments inside a key": {stream: calls(`{"index":0,"id":"c","type":"function","function":{"name":"t","arguments":"{\"un"}}`) +
			calls(`{"index":0,"function":{"arguments":"it\": \" <|tool"}}`) + calls(`{"index":0,"function":{"arguments":"|> \\n\"}"}}`) + finish + done,
			calls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: `{"unit": " <|tool|> \n"}`}}},
		"two calls interleaved": {stream: calls(`{"index":0,"id":"c","function":{"name":"t","arguments":"1"}}`) + calls(`{"index":1,"id":"d","function":{"name":"u","arguments":"2"}}`) +
			calls(`{"index":0,"function":{"arguments":"1"}},{"index":1,"function":{"arguments":"2"}}`) + finish,
			calls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: "11"}, {ID: "d", Name: "u", Arguments: "22"}}},
		"no index": {stream: calls(`{"id":"c","function":{"name":"t","arguments":"1"}}`) + calls(`{"function":{"arguments":"1"}}`) + calls(`{"id":"d","function":{"name":"t","arguments":"2"}}`) + finish,
			calls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: "11"}, {ID: "d", Name: "t", Arguments: "2"}}},
		"all at index 0": {stream: calls(`{"index":0,"id":"c","function":{"name":"t","arguments":"1"}},{"index":0,"id":"d","function":{"name":"t","arguments":"2"}}`) + finish,
			calls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: "1"}, {ID: "d", Name: "t", Arguments: "2"}}},
		"id repeated": {stream: calls(`{"index":0,"id":"c","function":{"name":"t","arguments":"1"}}`) + calls(`{"index":0,"id":"c","function":{"name":"t","arguments":"1"}}`) + finish,
			calls: []chat.ToolCall{{ID: "c", Name: "t", Arguments: "11"}}},
		"usage event": {stream: chunk(`"content":"a"`) + finish + `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}` + "\n\n" + done, text: "a"},

		"nothing":                {stream: "", kind: Truncated},
		"text, then the end":     {stream: chunk(`"content":"a"`), kind: Truncated},
		"ends inside an event":   {stream: chunk(`"content":"a"`) + `data: {"choi`, kind: Truncated},
		"ends inside a call":     {stream: calls(`{"index":0,"id":"c","function":{"name":"t","arguments":"{\"un"}}`), kind: Truncated},
		"error event":            {stream: chunk(`"content":"a"`) + `data: {"error":{"message":"boom"}}` + "\n\n", kind: Server},
		"error event by name":    {stream: "event: error\ndata: {\"message\":\"boom\"}\n\n", kind: Server},
		"error after the finish": {stream: chunk(`"content":"a"`) + finish + `data: {"error":"boom"}` + "\n\n" + done, kind: Server},
		"error field":            {stream: chunk(`"content":"a"`) + `error: {"code":500,"message":"boom"}` + "\n\n", kind: Server},
		"context":                {stream: `data: {"error":{"type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}` + "\n\n", kind: Context},
		"not json":               {stream: "data: hello\n\n" + done, kind: Malformed},
		"not utf-8":              {stream: "data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n" + done, kind: Malformed},
		"other choice":           {stream: `data: {"choices":[{"index":1,"delta":{"content":"a"}}]}` + "\n\n" + done, kind: Malformed},
		"new id, no name":        {stream: calls(`{"index":0,"id":"c","function":{"name":"t"}}`) + calls(`{"index":0,"id":"d","function":{"arguments":"1"}}`) + finish, kind: Malformed},
		"name changes":           {stream: calls(`{"index":0,"id":"c","function":{"name":"t"}}`) + calls(`{"index":0,"function":{"name":"u"}}`) + finish, kind: Malformed},
		"call after finish":      {stream: finish + calls(`{"index":0,"id":"c","function":{"name":"t"}}`) + done, kind: Malformed},
		"arguments grow":         {stream: calls(`{"index":0,"id":"c","function":{"name":"t"}}`) + strings.Repeat(calls(`{"index":0,"function":{"arguments":"`+strings.Repeat("a", 64<<10)+`"}}`), 5) + finish, kind: TooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ReadStream(strings.NewReader(tt.stream), 9, nil)
			if KindOf(err) != tt.kind {
				t.Fatalf("error %v, want kind %q", err, tt.kind)
			}
			if err != nil {
				return
			}
			want := chat.Message{Role: chat.Assistant, Text: tt.text, ToolCalls: tt.calls}
			if d := cmp.Diff(want, got.Message, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			stop := chat.StopEnd
			if tt.stop != "" {
				stop = tt.stop
			} else if len(tt.calls) > 0 {
				stop = chat.StopToolCalls
			}
			if got.Stop != stop {
				t.Errorf("stop %q, want %q", got.Stop, stop)
			}
		})
	}
}

// endless never stops and counts what was taken of it.
type endless struct {
	line string
	n    int
}

func (e *endless) Read(p []byte) (int, error) {
	e.n += len(p)
	for i := range p {
		p[i] = e.line[i%len(e.line)]
	}
	return len(p), nil
}

func TestReadStreamEndless(t *testing.T) {
	t.Parallel()
	for _, line := range []string{":\n", "\n", "a", "data: a\n"} {
		e := &endless{line: line}
		if _, err := ReadStream(e, 0, nil); KindOf(err) != TooLarge {
			t.Errorf("%q for ever: %v", line, err)
		}
		if e.n > chat.MaxResponseBytes+64<<10 {
			t.Errorf("%q for ever: read %d bytes", line, e.n)
		}
	}
}

// The sink sees no more than a message may hold.
func TestReadStreamTextLimit(t *testing.T) {
	t.Parallel()
	n := 0
	_, err := ReadStream(strings.NewReader(strings.Repeat(chunk(`"content":"`+strings.Repeat("a", 100<<10)+`"`), 20)+finish), 0, func(s string) { n += len(s) })
	if KindOf(err) != TooLarge || n > chat.MaxText {
		t.Errorf("%v after %d bytes", err, n)
	}
}

func TestReadStreamTransport(t *testing.T) {
	t.Parallel()
	cause := errors.New("cable cut")
	start := chunk(`"content":"a"`) + `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}` + "\n\n"
	_, err := ReadStream(io.MultiReader(strings.NewReader(start), iotest.ErrReader(cause)), 0, nil)
	var e *Error
	if !errors.As(err, &e) || e.Kind != Read || !errors.Is(err, cause) {
		t.Fatalf("error %v", err)
	}
	if e.Usage == nil || e.Usage.Total() != 11 {
		t.Errorf("usage %v, want what the server had reported", e.Usage)
	}
	_, err = ReadStream(io.MultiReader(strings.NewReader(start), iotest.ErrReader(io.ErrUnexpectedEOF)), 0, nil)
	if KindOf(err) != Truncated {
		t.Errorf("error %v, want truncated", err)
	}
}

func TestServerErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body, want string
		context    bool
	}{
		"openai":       {`{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, "invalid_request_error: too long", true},
		"llama-server": {`{"error":{"code":400,"message":"exceeds","type":"exceed_context_size_error","n_prompt_tokens":5001,"n_ctx":4096}}`, "the prompt has 5001 tokens, the model's context 4096: exceeds", true},
		"string":       {`{"error":"no model"}`, "no model", false},
		"detail":       {`{"detail":"not found"}`, "not found", false},
		"text":         {"gateway\x1b[2J\r\nfailed", "gateway [2J failed", false},
		"nothing":      {``, "the server gave no reason", false},
		"odd":          {`{"error":[1]}`, "the server gave no reason", false},
		"long":         {`{"error":"` + strings.Repeat("é", 600) + `"}`, strings.Repeat("é", 254) + "…", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := DecodeError([]byte(tt.body))
			if e.String() != tt.want || e.ContextExceeded() != tt.context {
				t.Errorf("got %q, context %v; want %q, %v", e, e.ContextExceeded(), tt.want, tt.context)
			}
		})
	}
	in := ServerError{Message: "m", Type: "t", Code: "c", Param: "p"}
	if d := cmp.Diff(in, DecodeError(EncodeError(in))); d != "" {
		t.Errorf("round trip (-want +got):\n%s", d)
	}
	_, err := DecodeRequest([]byte(`{"store":true}`))
	var e *Error
	if !errors.As(err, &e) || e.HTTPStatus() != 400 || DecodeError(e.Body()).Param != "/store" {
		t.Errorf("body of %v: %s", err, e.Body())
	}
}

func FuzzDecodeResponse(f *testing.F) {
	b, _ := EncodeResponse(fullResponse(), 1)
	f.Add(b)
	f.Add([]byte(`{"error":{"message":"boom"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		DecodeError(body)
		r, err := DecodeResponse(body, len(body))
		if err != nil {
			if KindOf(err) == "" {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if r.Usage.InputTokens < 0 || r.Usage.OutputTokens < 0 {
			t.Fatalf("usage %+v", r.Usage)
		}
		out, err := EncodeResponse(r, 0)
		if err != nil {
			if KindOf(err) == TooLarge {
				return
			}
			t.Fatalf("accepted response does not encode: %v", err)
		}
		again, err := DecodeResponse(out, len(body))
		if err != nil {
			t.Fatalf("own encoding refused: %v", err)
		}
		r.Usage, again.Usage = chat.Usage{}, chat.Usage{}
		if d := cmp.Diff(r, again, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("round trip:\n%s", d)
		}
	})
}

func FuzzReadStream(f *testing.F) {
	f.Add([]byte(chunk(`"content":"a"`) + finish + done))
	f.Add([]byte(calls(`{"index":0,"id":"c","function":{"name":"t","arguments":"1"}}`) + finish))
	f.Add([]byte("event: error\ndata: {\"message\":\"boom\"}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var text strings.Builder
		r, err := ReadStream(bytes.NewReader(stream), len(stream), func(d string) { text.WriteString(d) })
		if err != nil {
			if KindOf(err) == "" {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if text.String() != r.Message.Text {
			t.Fatalf("deltas %q are not the text %q", text.String(), r.Message.Text)
		}
		one, err := ReadStream(iotest.OneByteReader(bytes.NewReader(stream)), len(stream), nil)
		if err != nil {
			t.Fatalf("byte by byte: %v", err)
		}
		if d := cmp.Diff(r, one); d != "" {
			t.Fatalf("depends on the reads:\n%s", d)
		}
	})
}
