package chat

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func good() Request {
	t, p, s := 0.5, 1.0, int64(1)
	return Request{
		MaxOutputTokens: 1, ToolChoice: ChooseAuto, Sampling: &Sampling{Temperature: &t, TopP: &p, Seed: &s, Stop: []string{"x"}},
		Messages: []Message{{Role: User, Text: "hi"}, {Role: Assistant, ToolCalls: []ToolCall{{ID: "c", Name: "t", Arguments: "{}"}}}, {Role: ToolRole, ToolCallID: "c"}},
		Tools:    []Tool{{Name: "t", Schema: json.RawMessage(`{}`)}},
	}
}

func TestRequestCheck(t *testing.T) {
	t.Parallel()
	hot, big := 3.0, 1.5
	long := strings.Repeat("a", MaxNameLen+1)
	tests := map[string]struct {
		spoil func(*Request)
		want  string
	}{
		"good":              {func(*Request) {}, ""},
		"no messages":       {func(r *Request) { r.Messages = nil }, "no messages"},
		"many messages":     {func(r *Request) { r.Messages = make([]Message, MaxMessages+1) }, "1025 messages"},
		"many tools":        {func(r *Request) { r.Tools = make([]Tool, MaxTools+1) }, "129 tools"},
		"no limit":          {func(r *Request) { r.MaxOutputTokens = 0 }, "no output limit"},
		"tool choice":       {func(r *Request) { r.ToolChoice = "any" }, "tool choice"},
		"unnamed tool":      {func(r *Request) { r.Tools[0].Name = "" }, "tool 0"},
		"long tool name":    {func(r *Request) { r.Tools[0].Name = long }, "tool 0"},
		"role":              {func(r *Request) { r.Messages[0].Role = "root" }, "unknown role"},
		"long text":         {func(r *Request) { r.Messages[0].Text = strings.Repeat("a", MaxText+1) }, "text has"},
		"long arguments":    {func(r *Request) { r.Messages[1].ToolCalls[0].Arguments = strings.Repeat("a", MaxArguments+1) }, "arguments of"},
		"many calls":        {func(r *Request) { r.Messages[1].ToolCalls = make([]ToolCall, MaxToolCalls+1) }, "65 tool calls"},
		"long call ID":      {func(r *Request) { r.Messages[1].ToolCalls[0].ID = long }, "longer than"},
		"long answered ID":  {func(r *Request) { r.Messages[2].ToolCallID = long }, "longer than"},
		"temperature":       {func(r *Request) { r.Sampling.Temperature = &hot }, "temperature"},
		"top_p":             {func(r *Request) { r.Sampling.TopP = &big }, "top_p"},
		"many stops":        {func(r *Request) { r.Sampling.Stop = make([]string, MaxStops+1) }, "stop strings"},
		"empty stop string": {func(r *Request) { r.Sampling.Stop = []string{""} }, "stop string"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good()
			tt.spoil(&r)
			err := r.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestResponseCheck(t *testing.T) {
	t.Parallel()
	if err := (&Response{Message: Message{Role: Assistant}}).Check(); err != nil {
		t.Error(err)
	}
	if err := (&Response{Message: Message{Role: User}}).Check(); err == nil {
		t.Error("a user's response passed")
	}
	if n := (Usage{InputTokens: 2, OutputTokens: 3}).Total(); n != 5 {
		t.Errorf("total %d", n)
	}
}

func TestRequestJSON(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(good())
	if err != nil {
		t.Fatal(err)
	}
	var r Request
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(good(), r); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in    string
		limit int
		want  string
	}{
		{"plain", 10, "plain"}, {"", 10, ""}, {"  a \r\n\t b ", 10, "a b"},
		{"a\x1b[31mb\x07\u202ec\u200bd\u2028e", 64, "a [31mb c d e"},
		{"bad \xff\xfe utf", 64, "bad \ufffd utf"},
		{"1234567890", 10, "1234567890"}, {"12345678901", 10, "1234567…"}, {"ééééé", 8, "éé…"},
		{strings.Repeat("a", 1<<20), 12, "aaaaaaaaa…"}, {strings.Repeat(" ", 1000) + "x", 8, "…"},
	}
	for _, tt := range tests {
		if got := Clean(tt.in, tt.limit); got != tt.want {
			t.Errorf("Clean(%.20q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[2J\xff\n", 8)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = limit&0xfff + 3
		out := Clean(s, limit)
		if len(out) > limit || !utf8.ValidString(out) || strings.ContainsFunc(out, unicode.IsControl) {
			t.Fatalf("Clean(%q, %d) = %q", s, limit, out)
		}
	})
}
