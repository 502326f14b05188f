package registry

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"agentos/internal/execution/tool"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/label"
)

func echo(schema string) tool.Descriptor {
	return tool.Descriptor{
		Name: "echo", InputSchema: json.RawMessage(schema), OutputSchema: json.RawMessage(`{}`), Effect: tool.Read,
		Deadline: time.Second, MaxArgs: 200, MaxResult: 1000,
	}
}

const strictSchema = `{"type":"object","properties":{"unit":{"type":"string","pattern":"^[a-z]+$","maxLength":8}},"required":["unit"],"additionalProperties":false}`

func testRegistry(t *testing.T) *Registry {
	t.Helper()
	r, err := New(Config{
		Tools: []tool.Descriptor{echo(strictSchema)}, Owner: 1000, Agent: "a",
		Model: Model{Backend: "socket", Metered: true, Local: true, MaxOutput: 100, Timeout: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mk(t *testing.T, a call.Action, res, args string) *call.Call {
	t.Helper()
	c, err := call.New("call-1", call.Subject{Owner: 1000, Agent: "a", Run: "r"}, a, res, []byte(args), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestTarget(t *testing.T) {
	r := testRegistry(t)
	for name, tc := range map[string]struct {
		c    *call.Call
		want fault.Kind
		text string
	}{
		"fits":                  {mk(t, call.ToolCall, "echo", `{"unit":"abc"}`), "", ""},
		"unknown tool":          {mk(t, call.ToolCall, "Echo", `{"unit":"abc"}`), fault.NotFound, "no tool"},
		"missing":               {mk(t, call.ToolCall, "echo", `{}`), fault.Usage, "unit"},
		"extra":                 {mk(t, call.ToolCall, "echo", `{"unit":"abc","x":1}`), fault.Usage, "x"},
		"wrong type":            {mk(t, call.ToolCall, "echo", `{"unit":7}`), fault.Usage, "/unit"},
		"pattern":               {mk(t, call.ToolCall, "echo", `{"unit":"a;b"}`), fault.Usage, "/unit"},
		"too long":              {mk(t, call.ToolCall, "echo", `{"unit":"abcdefghi"}`), fault.Usage, "/unit"},
		"too many bytes":        {mk(t, call.ToolCall, "echo", `{"unit":"`+strings.Repeat("a", 300)+`"}`), fault.Limit, "200"},
		"model":                 {mk(t, call.ModelGenerate, "socket", `{"context":"sha256:x","context_bytes":10,"max_output_tokens":100,"model":"m","stream":false}`), "", ""},
		"model of another name": {mk(t, call.ModelGenerate, "rules", `{"context":"x","context_bytes":10,"max_output_tokens":1,"model":"","stream":false}`), fault.NotFound, "rules"},
		"model, over the cap":   {mk(t, call.ModelGenerate, "socket", `{"context":"x","context_bytes":10,"max_output_tokens":101,"model":"","stream":false}`), fault.Limit, "101"},
		"model, no cap":         {mk(t, call.ModelGenerate, "socket", `{"context":"x","context_bytes":10,"max_output_tokens":0,"model":"","stream":false}`), fault.Limit, ""},
		"model, extra":          {mk(t, call.ModelGenerate, "socket", `{"context":"x","context_bytes":10,"max_output_tokens":1,"model":"","stream":false,"store":true}`), fault.Usage, ""},
		"agent":                 {mk(t, call.AgentStart, "a", `{"goal_hash":"x"}`), "", ""},
		"agent of another name": {mk(t, call.AgentStart, "b", `{}`), fault.NotFound, `"b"`},
		"unknown action":        {mk(t, "tool.delete", "echo", `{}`), fault.NotFound, "tool.delete"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Target(tc.c)
			if fault.KindOf(err) != tc.want || (err != nil && !strings.Contains(err.Error(), tc.text)) {
				t.Fatalf("%v, want %q with %q", err, tc.want, tc.text)
			}
			if err == nil && (got.Deadline <= 0 || got.MaxResult <= 0 || got.Type == "" || got.Effect == "") {
				t.Errorf("open-ended target %+v", got)
			}
		})
	}
}

func TestUpperBounds(t *testing.T) {
	r := testRegistry(t)
	m, err := r.Target(mk(t, call.ModelGenerate, "socket", `{"context":"x","context_bytes":1000,"max_output_tokens":100,"model":"","stream":false}`))
	if err != nil || m.Upper[budget.Tokens] < 1000/4+100 || m.Upper[budget.ModelCall] != 1 {
		t.Errorf("%v %v", m.Upper, err)
	}
	if m.Label.Integrity == label.Trusted {
		t.Error("model output is trusted")
	}
	e, err := r.Target(mk(t, call.ToolCall, "echo", `{"unit":"a"}`))
	if err != nil || e.Upper[budget.ToolCalls] != 1 || e.Label.Integrity == label.Trusted {
		t.Errorf("%+v %v", e, err)
	}
}

func TestConfiguredLimitsOnlyLower(t *testing.T) {
	for configured, want := range map[int]int{0: 200, 50: 50, 5000: 200} {
		r, err := New(Config{Tools: []tool.Descriptor{echo(strictSchema)}, ArgumentLimit: configured, OutputLimit: configured})
		if err != nil {
			t.Fatal(err)
		}
		if d, _ := r.Tool("echo"); d.MaxArgs != want {
			t.Errorf("configured %d: %d", configured, d.MaxArgs)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, tools := range map[string][]tool.Descriptor{
		"schema that is no schema": {echo(`{"type":7}`)},
		"schema that is no JSON":   {echo(`{`)},
		"schema from elsewhere":    {echo(`{"$ref":"https://example.test/schema.json"}`)},
		"schema from a file":       {echo(`{"$ref":"file:///etc/passwd"}`)},
		"twice":                    {echo(strictSchema), echo(strictSchema)},
		"no limit":                 {{Name: "x", InputSchema: json.RawMessage(`{}`)}},
	} {
		if _, err := New(Config{Tools: tools}); err == nil {
			t.Error("accepted a", name)
		}
	}
}
