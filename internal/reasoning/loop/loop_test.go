package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/api/runspec"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/endreason"
)

func numbered(n int) chat.Response {
	return calls(call(fmt.Sprint("c", n), "read", fmt.Sprintf(`{"n":%d}`, n)))
}

// Spec: OSA-01. Each limit and each misbehaviour ends with its own reason.
func TestReasons(t *testing.T) {
	t.Parallel()
	limits := runspec.Limits{Iterations: 5, ToolCalls: 6, OutputTokens: 100, TotalTokens: 1000}
	withUsage := func(r chat.Response, in, out int) chat.Response {
		r.Usage = chat.Usage{InputTokens: in, OutputTokens: out}
		return r
	}
	withStop := func(r chat.Response, s chat.StopReason) chat.Response { r.Stop = s; return r }
	for name, tt := range map[string]reasonCase{
		"completes": {model: func(int) (chat.Response, error) { return text("done"), nil }, want: endreason.Completed, iters: 1, text: "done"},
		"completes late": {model: func(n int) (chat.Response, error) {
			return []chat.Response{numbered(0), numbered(1), text("ok")}[n], nil
		}, want: endreason.Completed, iters: 3, calls: 2, text: "ok"},
		"iterations": {model: func(n int) (chat.Response, error) { return numbered(n), nil }, want: endreason.LimitIterations, iters: 5, calls: 5},
		"tool calls": {model: func(n int) (chat.Response, error) {
			return calls(call(fmt.Sprint("a", n), "read", fmt.Sprint(`{"a":`, n, `}`)), call(fmt.Sprint("b", n), "read", fmt.Sprint(`{"b":`, n, `}`))), nil
		}, want: endreason.LimitToolCalls, iters: 4, calls: 6},
		"turn tokens": {model: func(int) (chat.Response, error) { return withStop(text("half"), chat.StopLength), nil }, want: endreason.LimitTurnTokens, iters: 1, text: "half"},
		"cut call is not made": {model: func(n int) (chat.Response, error) { return withStop(numbered(n), chat.StopLength), nil },
			want: endreason.LimitTurnTokens, iters: 1},
		"total tokens": {model: func(n int) (chat.Response, error) { return withUsage(numbered(n), 600, 10), nil }, want: endreason.LimitTotalTokens, iters: 2, calls: 2},
		"last tokens": {model: func(n int) (chat.Response, error) {
			return []chat.Response{withUsage(numbered(0), 950, 0), withStop(text("cut"), chat.StopLength)}[n], nil
		}, want: endreason.LimitTotalTokens, iters: 2, calls: 1, text: "cut"},
		"negative usage gives nothing back": {model: func(n int) (chat.Response, error) {
			return []chat.Response{withUsage(numbered(0), 500, 0), withUsage(numbered(1), -5000, -5000), withUsage(numbered(2), 500, 0), numbered(3), numbered(4)}[n], nil
		}, want: endreason.LimitTotalTokens, iters: 3, calls: 3},
		"duplicate in a turn":    {model: func(int) (chat.Response, error) { return calls(call("x", "read", "{}"), call("x", "read2", "{}")), nil }, want: endreason.DuplicateCallID, iters: 1},
		"duplicate across turns": {model: func(n int) (chat.Response, error) { return calls(call("x", "read", fmt.Sprint(`{"n":`, n, `}`))), nil }, want: endreason.DuplicateCallID, iters: 2, calls: 1},
		"no ID":                  {model: func(int) (chat.Response, error) { return calls(call("", "read", "{}")), nil }, want: endreason.ModelMalformed, iters: 1},
		"no name":                {model: func(int) (chat.Response, error) { return calls(call("x", "", "{}")), nil }, want: endreason.ModelMalformed, iters: 1},
		"empty":                  {model: func(int) (chat.Response, error) { return text(""), nil }, want: endreason.ModelMalformed, iters: 1},
		"calls announced, none":  {model: func(int) (chat.Response, error) { return withStop(text("x"), chat.StopToolCalls), nil }, want: endreason.ModelMalformed, iters: 1, text: "x"},
		"wrong role": {model: func(int) (chat.Response, error) {
			r := text("x")
			r.Message.Role = chat.User
			return r, nil
		}, want: endreason.ModelMalformed, iters: 1},
		"refusal":         {model: func(int) (chat.Response, error) { return withStop(text("no"), chat.StopRefused), nil }, want: endreason.ModelError, iters: 1, text: "no"},
		"same turn":       {model: func(n int) (chat.Response, error) { return calls(call(fmt.Sprint(n), "read", `{"a": 1}`)), nil }, want: endreason.NoProgress, iters: 3, calls: 3},
		"plain error":     {model: func(int) (chat.Response, error) { return chat.Response{}, errors.New("boom") }, want: endreason.ModelError, iters: 1},
		"not understood":  coded("not_understood", endreason.NotUnderstood),
		"malformed":       coded("malformed", endreason.ModelMalformed),
		"truncated":       coded("truncated", endreason.ModelMalformed),
		"too large":       coded("too_large", endreason.ModelMalformed),
		"server error":    coded("server_error", endreason.ModelError),
		"model cancelled": coded("cancelled", endreason.Cancelled),
		"budget tokens":   coded("budget_tokens", endreason.LimitTotalTokens),
		"budget models":   coded("budget_model_calls", endreason.LimitIterations),
		"budget other":    coded("budget_money", endreason.Refused),
		"denied":          coded("denied_policy", endreason.Refused),
		"tools gone at start": {model: func(int) (chat.Response, error) { return text("x"), nil },
			tools: &fakeTools{listErr: errors.New("gone")}, want: endreason.Crashed},
		"tools gone": {model: func(n int) (chat.Response, error) { return numbered(n), nil }, tools: &fakeTools{
			do: func(context.Context, string, json.RawMessage) (ToolResult, error) {
				return ToolResult{}, errors.New("gone")
			},
		}, want: endreason.Crashed, iters: 1, calls: 1},
		"tool budget": {model: func(n int) (chat.Response, error) { return numbered(n), nil }, tools: &fakeTools{
			do: func(context.Context, string, json.RawMessage) (ToolResult, error) {
				return ToolResult{Text: "denied at budget: used up", Error: true, Exhausted: "tool_calls"}, nil
			},
		}, want: endreason.LimitToolCalls, iters: 1, calls: 1},
		"gate denies, model adapts": {model: func(n int) (chat.Response, error) { return []chat.Response{numbered(0), text("could not")}[n], nil }, tools: &fakeTools{
			do: func(context.Context, string, json.RawMessage) (ToolResult, error) {
				return ToolResult{Text: "denied at policy: no rule permits it", Error: true}, nil
			},
		}, want: endreason.Completed, iters: 2, calls: 1, text: "could not"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := tt.tools
			if tools == nil {
				tools = &fakeTools{}
			}
			got := Run(t.Context(), order(limits), Deps{Model: &eachModel{f: tt.model}, Tools: tools})
			if got.Reason != tt.want || got.Iterations != tt.iters || got.ToolCalls != tt.calls || got.Report != tt.text {
				t.Errorf("got %+v, want %s after %d turns, %d calls, report %q", got, tt.want, tt.iters, tt.calls, tt.text)
			}
			if !got.Reason.Valid() || (got.Reason != endreason.Completed && got.Detail == "") || len(got.Detail) > maxDetail {
				t.Errorf("reason or detail: %+v", got)
			}
		})
	}
}

type reasonCase struct {
	model each
	tools *fakeTools // nil: all succeed
	want  endreason.Reason
	iters int
	calls int
	text  string // the report
}

func coded(code string, want endreason.Reason) reasonCase {
	return reasonCase{
		model: func(int) (chat.Response, error) { return chat.Response{}, &ModelError{Code: code, Msg: "why"} },
		want:  want, iters: 1,
	}
}

// Time is the fake clock of the bubble: no test waits.
func TestElapsedAndCancel(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ chat.Request) (chat.Response, error) {
		<-ctx.Done()
		return chat.Response{}, ctx.Err()
	}
	hangTool := &fakeTools{do: func(ctx context.Context, _ string, _ json.RawMessage) (ToolResult, error) {
		<-ctx.Done()
		return ToolResult{}, ctx.Err()
	}}
	for name, d := range map[string]Deps{
		"model hangs": {Model: &script{turns: []func(context.Context, chat.Request) (chat.Response, error){hang}}, Tools: &fakeTools{}},
		"tool hangs":  {Model: &eachModel{f: func(n int) (chat.Response, error) { return numbered(n), nil }}, Tools: hangTool},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			got := Run(t.Context(), order(runspec.Limits{ElapsedMS: 7000}), d)
			if got.Reason != endreason.LimitElapsed || time.Since(begin) != 7*time.Second {
				t.Errorf("%s: %+v after %v", name, got, time.Since(begin))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		got := Run(ctx, order(runspec.Limits{}), Deps{Model: &script{turns: []func(context.Context, chat.Request) (chat.Response, error){hang}}, Tools: &fakeTools{}})
		if got.Reason != endreason.Cancelled {
			t.Errorf("cancel: %+v", got)
		}
	})
}

// Read-only calls of a turn run at once up to the limit, results keep call
// order; a writing call stands alone.
func TestParallel(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			var cs []chat.ToolCall
			for i := range 9 {
				cs = append(cs, call(fmt.Sprint("c", i), "read", fmt.Sprintf(`{"n":%d}`, i)))
			}
			tools := &fakeTools{do: func(_ context.Context, _ string, args json.RawMessage) (ToolResult, error) {
				var a struct{ N int }
				if err := json.Unmarshal(args, &a); err != nil {
					return ToolResult{}, err
				}
				time.Sleep(time.Duration(20-a.N) * time.Second) // fake time; later calls end first
				return ToolResult{Text: fmt.Sprint("r", a.N)}, nil
			}}
			model := &script{turns: []func(context.Context, chat.Request) (chat.Response, error){always(calls(cs...)), always(text("ok"))}}
			got := Run(t.Context(), order(runspec.Limits{Parallel: limit, ElapsedMS: 1e6}), Deps{Model: model, Tools: tools})
			if got.Reason != endreason.Completed || tools.max != limit {
				t.Errorf("limit %d: at most %d at once, %+v", limit, tools.max, got)
			}
			var order []string
			for _, m := range model.reqs[1].Messages {
				if m.Role == chat.ToolRole {
					order = append(order, m.ToolCallID+m.Text)
				}
			}
			want := []string{"c0r0", "c1r1", "c2r2", "c3r3", "c4r4", "c5r5", "c6r6", "c7r7", "c8r8"}
			if diff := cmp.Diff(want, order); diff != "" {
				t.Errorf("limit %d: results (-want +got):\n%s", limit, diff)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var at []string
		tools := &fakeTools{do: func(_ context.Context, name string, _ json.RawMessage) (ToolResult, error) {
			time.Sleep(time.Second)
			return ToolResult{Text: name}, nil
		}}
		cs := calls(call("1", "read", "{}"), call("2", "read2", "{}"), call("3", "write", "{}"), call("4", "write", `{"b":1}`), call("5", "read", `{"b":1}`))
		begin := time.Now()
		Run(t.Context(), order(runspec.Limits{}), Deps{Tools: tools, Model: &script{turns: []func(context.Context, chat.Request) (chat.Response, error){always(cs), always(text("ok"))}}})
		if d := time.Since(begin); d != 4*time.Second || tools.max != 2 {
			t.Errorf("%v, %d at once, want 4s (two together, then one by one) and 2: %v", d, tools.max, at)
		}
	})
}

// What the model gets wrong is told to the model, and is counted.
func TestModelMistakes(t *testing.T) {
	t.Parallel()
	model := &script{turns: []func(context.Context, chat.Request) (chat.Response, error){
		always(calls(call("1", "nothing\x1b[31m", "{}"), call("2", "read", "{not json"), call("3", "read", `[1]`),
			call("4", "read", `{"a":1,"a":2}`), call("5", "read", ""), call("6", "read", `{"b": 1.0}`))),
		always(text("ok")),
	}}
	tools := &fakeTools{}
	got := Run(t.Context(), order(runspec.Limits{}), Deps{Model: model, Tools: tools})
	if got.Reason != endreason.Completed || got.ToolCalls != 6 {
		t.Errorf("%+v", got)
	}
	slices.Sort(tools.log) // the two run in parallel
	if diff := cmp.Diff([]string{`read{"b":1}`, `read{}`}, tools.log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	ms := model.reqs[1].Messages
	if ms[0].Role != chat.System || ms[1].Role != chat.User || len(ms) != 9 {
		t.Fatalf("conversation: %+v", ms)
	}
	for i, want := range []string{"there is no tool", "not one JSON object", "not one JSON object", "not one JSON object", "result of", "result of"} {
		if m := ms[3+i]; !strings.Contains(m.Text, want) || m.ToolCallID != fmt.Sprint(i+1) || strings.Contains(m.Text, "\x1b") {
			t.Errorf("message %d: %+v, want %q", i, m, want)
		}
	}
}

func TestLongResultIsCut(t *testing.T) {
	t.Parallel()
	model := &script{turns: []func(context.Context, chat.Request) (chat.Response, error){always(numbered(0)), always(text("ok"))}}
	tools := &fakeTools{do: func(context.Context, string, json.RawMessage) (ToolResult, error) {
		return ToolResult{Text: strings.Repeat("ü", maxResult) + "\xff"}, nil
	}}
	if got := Run(t.Context(), order(runspec.Limits{}), Deps{Model: model, Tools: tools}); got.Reason != endreason.Completed {
		t.Fatal(got)
	}
	s := model.reqs[1].Messages[3].Text
	if len(s) > maxResult+100 || !strings.Contains(s, "[cut: ") {
		t.Errorf("%d bytes, ends %q", len(s), s[len(s)-60:])
	}
}

// Whatever a model says, the run ends with a valid reason within its limits.
func TestRandomModels(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		model := each(func(n int) (chat.Response, error) {
			switch rnd.IntN(12) {
			case 0:
				return chat.Response{}, &ModelError{Code: []string{"x", "malformed", "budget_x"}[rnd.IntN(3)]}
			case 1:
				return text([]string{"", "t"}[rnd.IntN(2)]), nil
			}
			var cs []chat.ToolCall
			for i := range rnd.IntN(6) {
				cs = append(cs, call(fmt.Sprint(n, ".", i-rnd.IntN(2)/(1+rnd.IntN(40))), []string{"read", "write", "none"}[rnd.IntN(3)],
					[]string{"{}", `{"a":1}`, "", "[", `{"n":` + fmt.Sprint(n) + `}`}[rnd.IntN(5)]))
			}
			r := calls(cs...)
			r.Usage = chat.Usage{InputTokens: rnd.IntN(2000) - 100, OutputTokens: rnd.IntN(100)}
			return r, nil
		})
		l := runspec.Limits{Iterations: 1 + rnd.IntN(20), ToolCalls: 1 + rnd.IntN(30), TotalTokens: 1 + rnd.IntN(20000), Parallel: 1 + rnd.IntN(4)}
		tools := &fakeTools{}
		got := Run(t.Context(), order(l), Deps{Model: &eachModel{f: model}, Tools: tools})
		if !got.Reason.Valid() || got.Iterations > l.Iterations || got.ToolCalls > l.ToolCalls || len(tools.log) > got.ToolCalls || tools.max > l.Parallel {
			t.Errorf("seed %d, %+v: %+v, %d at once", seed, l, got, tools.max)
		}
	}
}
