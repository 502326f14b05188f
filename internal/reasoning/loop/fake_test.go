package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"agentos/internal/api/runspec"
	"agentos/internal/lib/chat"
)

// script is a model that gives its turns in order.
type script struct {
	turns []func(ctx context.Context, req chat.Request) (chat.Response, error)
	reqs  []chat.Request
}

func (m *script) Generate(ctx context.Context, req chat.Request) (chat.Response, error) {
	req.Messages = append([]chat.Message(nil), req.Messages...)
	m.reqs = append(m.reqs, req)
	if len(m.reqs) > len(m.turns) {
		return chat.Response{}, fmt.Errorf("script has %d turns", len(m.turns))
	}
	return m.turns[len(m.reqs)-1](ctx, req)
}

// each makes a model from a function of the turn's number, counted from 0.
type each func(n int) (chat.Response, error)

type eachModel struct {
	f each
	n int
}

func (m *eachModel) Generate(ctx context.Context, _ chat.Request) (chat.Response, error) {
	if err := ctx.Err(); err != nil {
		return chat.Response{}, err
	}
	m.n++
	return m.f(m.n - 1)
}

func always(resp chat.Response) func(context.Context, chat.Request) (chat.Response, error) {
	return func(context.Context, chat.Request) (chat.Response, error) { return resp, nil }
}

func text(s string) chat.Response {
	return chat.Response{Message: chat.Message{Role: chat.Assistant, Text: s}, Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 10, OutputTokens: 5}}
}

func calls(c ...chat.ToolCall) chat.Response {
	return chat.Response{Message: chat.Message{Role: chat.Assistant, ToolCalls: c}, Stop: chat.StopToolCalls, Usage: chat.Usage{InputTokens: 10, OutputTokens: 5}}
}

func call(id, name, args string) chat.ToolCall {
	return chat.ToolCall{ID: id, Name: name, Arguments: args}
}

// fakeTools offers "read" and "read2" (read-only) and "write".
type fakeTools struct {
	do      func(ctx context.Context, name string, args json.RawMessage) (ToolResult, error)
	listErr error

	mu           sync.Mutex
	running, max int
	log          []string
}

func (f *fakeTools) List(context.Context) ([]Tool, error) {
	schema := json.RawMessage(`{"type":"object"}`)
	return []Tool{
		{Tool: chat.Tool{Name: "read", Schema: schema}, ReadOnly: true},
		{Tool: chat.Tool{Name: "read2", Schema: schema}, ReadOnly: true},
		{Tool: chat.Tool{Name: "write", Schema: schema}},
	}, f.listErr
}

func (f *fakeTools) Call(ctx context.Context, name string, args json.RawMessage) (ToolResult, error) {
	f.mu.Lock()
	f.running++
	f.max = max(f.max, f.running)
	f.log = append(f.log, name+string(args))
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	if f.do == nil {
		return ToolResult{Text: "result of " + name + string(args)}, nil
	}
	return f.do(ctx, name, args)
}

// order is a spec with l, and with OSA-01's default for each limit that is 0.
func order(l runspec.Limits) runspec.Spec {
	for _, d := range []struct {
		v   *int
		def int
	}{{&l.Iterations, 8}, {&l.ToolCalls, 16}, {&l.ElapsedMS, 120_000}, {&l.OutputTokens, 2048}, {&l.TotalTokens, 65536}, {&l.Parallel, 4}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	return runspec.Spec{Run: "run-1", Goal: "g", System: "s", Limits: l}
}
