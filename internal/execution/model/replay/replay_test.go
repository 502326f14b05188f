package replay

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/execution/model"
	"agentos/internal/execution/model/modeltest"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/fault"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	// Faults of the body can be scripted, once as a body and once as a stream.
	// Which one a turn holds is fixed, so the request's mode picks the script.
	for name, stream := range map[string]bool{"body": false, "events": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, f := range modeltest.BodyFaults() {
				text := f.Body(stream)
				turn := Turn{Body: &text}
				if stream {
					turn = Turn{Body: nil, Events: &text}
				}
				modeltest.Fails(t, New(Script{Turns: []Turn{turn}}), f, stream)
			}
		})
	}
	modeltest.Run(t, modeltest.Harness{New: func(t *testing.T, turns ...modeltest.Turn) model.Backend {
		var s Script
		for _, turn := range turns {
			s.Turns = append(s.Turns, Turn{Response: turn.Response})
		}
		return New(s)
	}})
}

func request(messages ...chat.Message) chat.Request {
	return chat.Request{MaxOutputTokens: 9, Messages: append([]chat.Message{{Role: chat.User, Text: "the goal"}}, messages...),
		Tools: []chat.Tool{{Name: "t", Schema: []byte(`{}`)}}}
}

func TestExpectations(t *testing.T) {
	t.Parallel()
	result := chat.Message{Role: chat.ToolRole, ToolCallID: "c1", Text: "all is well"}
	met := []string{`{}`, `{"tool_result_for":"c1"}`, `{"contains":"is well"}`, `{"last_role":"tool"}`, `{"tools":["t"]}`}
	unmet := map[string]string{
		`{"tool_result_for":"c2"}`: `no result for call "c2"`, `{"contains":"ill"}`: `contains "ill"`,
		`{"last_role":"user"}`: `"tool", not "user"`, `{"tools":["t","u"]}`: `tool "u"`,
	}
	turn := func(expect string) *Backend {
		s, err := Parse([]byte(`{"fail":{"reason":"server_error","message":"used"},"expect":` + expect + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return New(s)
	}
	for _, e := range met {
		if _, err := turn(e).Generate(t.Context(), request(result), nil); model.ReasonOf(err) != model.ReasonServer {
			t.Errorf("%s: %v, want the turn", e, err)
		}
	}
	for e, want := range unmet {
		b := turn(e)
		for range 2 { // the turn is not used up
			if _, err := b.Generate(t.Context(), request(result), nil); model.ReasonOf(err) != model.ReasonRejected || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", e, err, want)
			}
		}
	}
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	s, err := Parse([]byte(`{"response":{"message":{"role":"assistant","text":"a"},"stop":"end","usage":{"input_tokens":1,"output_tokens":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	b := New(s)
	for i, want := range []model.Reason{"", model.ReasonExhausted, model.ReasonExhausted} {
		if _, err := b.Generate(t.Context(), request(), nil); model.ReasonOf(err) != want {
			t.Errorf("call %d: %v, want %q", i, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const ok = `{"response":{"message":{"role":"assistant","text":"a"},"stop":"end","usage":{"input_tokens":1,"output_tokens":1}}}`
	tests := map[string]struct {
		script string
		turns  int
		kind   fault.Kind
	}{
		"lines":              {ok + "\n" + ok + "\n", 2, ""},
		"one line":           {ok, 1, ""},
		"file":               {`{"version":"agentos.replay.v1","turns":[` + ok + `,` + ok + `]}`, 2, ""},
		"empty":              {"", 0, fault.Limit},
		"no turns":           {`{"version":"agentos.replay.v1","turns":[]}`, 0, fault.Limit},
		"other version":      {`{"version":"agentos.replay.v2","turns":[` + ok + `]}`, 0, fault.Malformed},
		"unknown member":     {`{"response":null,"answer":1}`, 0, fault.Malformed},
		"unknown in file":    {`{"version":"agentos.replay.v1","loop":true,"turns":[` + ok + `]}`, 0, fault.Malformed},
		"nothing in a turn":  {`{}`, 0, fault.Malformed},
		"two in a turn":      {`{"body":"a","events":"b"}`, 0, fault.Malformed},
		"duplicate member":   {`{"body":"a","body":"b"}`, 0, fault.Malformed},
		"unknown reason":     {`{"fail":{"reason":"tired"}}`, 0, fault.Malformed},
		"unknown stop":       {strings.Replace(ok, `"end"`, `"over"`, 1), 0, fault.Malformed},
		"calls without call": {strings.Replace(ok, `"end"`, `"tool_calls"`, 1), 0, fault.Malformed},
		"user's response":    {strings.Replace(ok, "assistant", "user", 1), 0, fault.Malformed},
		"negative usage":     {strings.Replace(ok, `"input_tokens":1`, `"input_tokens":-1`, 1), 0, fault.Malformed},
		"rest":               {ok + "\nnonsense", 0, fault.Malformed},
		"half":               {ok[:20], 0, fault.Malformed},
		"list":               {`[` + ok + `]`, 0, fault.Malformed},
		"large":              {strings.Repeat(" ", MaxBytes+1), 0, fault.Limit},
		"many":               {strings.Repeat(ok+"\n", MaxTurns+1), 0, fault.Limit},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse([]byte(tt.script))
			if fault.KindOf(err) != tt.kind || len(s.Turns) != tt.turns {
				t.Errorf("%d turns, %v; want %d, %q", len(s.Turns), err, tt.turns, tt.kind)
			}
			if err != nil && fault.NextOf(err) == "" {
				t.Error("no next step")
			}
		})
	}
}

// The page's examples are scripts, and it names every member and fault.
func TestSpecPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/spec/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```jsonl?\n(.*?)```").FindAllSubmatch(page, -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		if _, err := Parse(e[1]); err != nil {
			t.Errorf("example does not parse: %v\n%s", err, e[1])
		}
	}
	for _, list := range [][]modeltest.Fault{modeltest.BodyFaults(), modeltest.StatusFaults(), modeltest.ConnectionFaults()} {
		for _, f := range list {
			if !strings.Contains(string(page), "`"+string(f)+"`") {
				t.Errorf("docs/spec/replay.md lacks the fault %q", f)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":"agentos.replay.v1","turns":[{"body":"{}"}]}`))
	f.Add([]byte("{\"events\":\"data: [DONE]\\n\\n\"}\n{\"fail\":{\"reason\":\"timeout\"}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if k := fault.KindOf(err); k != fault.Malformed && k != fault.Limit {
				t.Fatal(err)
			}
			return
		}
		b, err := json.Marshal(map[string]any{"version": Version, "turns": s.Turns})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(b)
		if err != nil {
			t.Fatalf("own encoding refused: %v\n%s", err, b)
		}
		if d := cmp.Diff(s, again); d != "" {
			t.Fatal(d)
		}
		back := New(s)
		for range min(len(s.Turns), 8) {
			if r, err := back.Generate(t.Context(), request(), nil); err == nil {
				if err := r.Check(); err != nil {
					t.Fatal(err)
				}
			} else if model.ReasonOf(err) == "" {
				t.Fatalf("untyped error %v", err)
			}
		}
	})
}
