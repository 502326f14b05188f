// Package loop is the built-in agent: a bounded loop of model turns and tool
// calls towards one goal.
//
// State owned: the conversation of one run, in memory, gone when Run returns.
// Imports: api/runspec, lib/{canon,chat,endreason}. Imported by:
// cmd/agentos-loop and the adapters below this folder. Portable. It has no
// authority: models and tools are interfaces behind which the gate decides, and
// what the gate refuses comes back as text for the model to adapt to, except
// where a budget is used up. The loop's own limits are courtesy; the gate's
// budget is what holds.
//
// Lock order: none; only the read-only calls of one turn run concurrently, each
// writing its own result, and all end before the turn does.
// Invariants: every limit ends the run with its own reason; results are in call
// order whatever order they came in; a call ID is used once in a run; a run ends
// within its elapsed limit if model and tools honour their context; no text of a
// model or tool changes a limit.
// Behaviour: docs/spec/loop.md. Tests: loop_test.go, progress_test.go. Spec:
// OSA-01, AOS-01.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentos/internal/api/runspec"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/endreason"
)

// Model answers one turn; errors may be *ModelError. It must honour ctx.
type Model interface {
	Generate(ctx context.Context, req chat.Request) (chat.Response, error)
}

// Tools calls tools. It must honour ctx and be safe for concurrent use.
type Tools interface {
	// List returns the tools that may be offered to the model.
	List(ctx context.Context) ([]Tool, error)
	// Call runs one call; args is a JSON object. An error means that tools can't
	// be reached any more, and ends the run; a tool's own failure and the gate's
	// refusal are results.
	Call(ctx context.Context, name string, args json.RawMessage) (ToolResult, error)
}

// Tool is one tool. Only ReadOnly ones run in parallel.
type Tool struct {
	chat.Tool
	ReadOnly bool
}

// ToolResult is what a call came to.
type ToolResult struct {
	Text  string
	Error bool
	// Exhausted names the budget that is used up ("tokens", "tool_calls", …); the
	// run ends then.
	Exhausted string
}

// Deps is all that a run may touch.
type Deps struct {
	Model Model
	Tools Tools
}

const (
	maxDetail    = 512                  // bytes
	maxElapsedMS = 7 * 24 * 3600 * 1000 // far beyond it a duration overflows
	maxTokens    = 1 << 40              // where counting stops
)

var errElapsed = errors.New("elapsed limit reached")

// Run works on s, which runspec.DecodeSpec accepted, until the model has finished
// or a limit is reached. It always returns a report with a valid reason, and
// leaves no goroutine behind. Detail is one line of at most 512 bytes; Report is
// the model's last text, also when a limit ended the run; refused and unknown
// calls are counted in ToolCalls.
func Run(ctx context.Context, s runspec.Spec, d Deps) runspec.Report {
	elapsed := time.Duration(min(s.Limits.ElapsedMS, maxElapsedMS)) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, elapsed, errElapsed)
	defer cancel()
	r := &run{spec: s, deps: d, seen: map[string]bool{}}
	end := r.drive(ctx)
	r.res.Reason, r.res.Detail = end.reason, chat.Clean(end.detail, maxDetail)
	return r.res
}

// ending says why to stop; nil means go on.
type ending struct {
	reason endreason.Reason
	detail string
}

func stop(r endreason.Reason, format string, args ...any) *ending {
	return &ending{r, fmt.Sprintf(format, args...)}
}

type run struct {
	spec     runspec.Spec
	deps     Deps
	res      runspec.Report
	used     chat.Usage // of all turns
	tools    map[string]Tool
	offered  []chat.Tool
	messages []chat.Message
	seen     map[string]bool // call IDs of the whole run
	progress progress
}

func (r *run) drive(ctx context.Context) *ending {
	if end := r.open(ctx); end != nil {
		return end
	}
	for {
		resp, end := r.turn(ctx)
		if end == nil {
			end = r.consider(resp)
		}
		if end == nil {
			end = r.act(ctx, resp.Message.ToolCalls)
		}
		if end != nil {
			return end
		}
	}
}

// open asks for the tools once and starts the conversation.
func (r *run) open(ctx context.Context) *ending {
	list, err := r.deps.Tools.List(ctx)
	if err != nil {
		return r.broken(ctx, err)
	}
	r.tools = make(map[string]Tool, len(list))
	for _, t := range list {
		r.tools[t.Name] = t
		r.offered = append(r.offered, t.Tool)
	}
	if r.spec.System != "" {
		r.messages = append(r.messages, chat.Message{Role: chat.System, Text: r.spec.System})
	}
	r.messages = append(r.messages, chat.Message{Role: chat.User, Text: r.spec.Goal})
	return nil
}

// turn asks the model once.
func (r *run) turn(ctx context.Context) (chat.Response, *ending) {
	l := r.spec.Limits
	if end := ended(ctx); end != nil {
		return chat.Response{}, end
	}
	if r.res.Iterations >= l.Iterations {
		return chat.Response{}, stop(endreason.LimitIterations, "%d turns without a final answer", l.Iterations)
	}
	left := l.TotalTokens - r.used.Total()
	if left < 1 {
		return chat.Response{}, stop(endreason.LimitTotalTokens, "%d of %d tokens used", r.used.Total(), l.TotalTokens)
	}
	req := chat.Request{
		Model: r.spec.Model, Messages: r.messages, Tools: r.offered,
		MaxOutputTokens: min(l.OutputTokens, left), Stream: r.spec.Stream,
	}
	if err := req.Check(); err != nil {
		return chat.Response{}, stop(endreason.LimitTotalTokens, "the conversation outgrew what a request may hold: %v", err)
	}
	r.res.Iterations++
	resp, err := r.deps.Model.Generate(ctx, req)
	if err != nil {
		return resp, modelEnding(ctx, err)
	}
	if err := resp.Check(); err != nil {
		return resp, stop(endreason.ModelMalformed, "%v", err)
	}
	r.count(resp.Usage)
	if resp.Stop == chat.StopLength && req.MaxOutputTokens < l.OutputTokens {
		r.report(resp)
		return resp, stop(endreason.LimitTotalTokens, "the answer was cut at the last of %d tokens", l.TotalTokens)
	}
	return resp, nil
}

// count adds usage; a count below zero is nonsense and adds nothing, so that no
// backend can give tokens back.
func (r *run) count(u chat.Usage) {
	t := &r.used
	t.InputTokens = min(t.InputTokens+max(u.InputTokens, 0), maxTokens)
	t.OutputTokens = min(t.OutputTokens+max(u.OutputTokens, 0), maxTokens)
}

func (r *run) report(resp chat.Response) {
	if resp.Message.Text != "" {
		r.res.Report = resp.Message.Text
	}
}

// consider decides what a complete response means, before anything is called.
func (r *run) consider(resp chat.Response) *ending {
	r.report(resp)
	calls := resp.Message.ToolCalls
	switch {
	case resp.Stop == chat.StopLength:
		return stop(endreason.LimitTurnTokens, "the model reached %d output tokens in turn %d", r.spec.Limits.OutputTokens, r.res.Iterations)
	case resp.Stop == chat.StopRefused:
		return stop(endreason.ModelError, "the model refused to answer")
	case len(calls) == 0 && (resp.Stop == chat.StopToolCalls || resp.Message.Text == ""):
		return stop(endreason.ModelMalformed, "turn %d has neither text nor tool calls", r.res.Iterations)
	case len(calls) == 0:
		return &ending{reason: endreason.Completed}
	}
	for _, c := range calls {
		if c.ID == "" || c.Name == "" {
			return stop(endreason.ModelMalformed, "a tool call of turn %d has no ID or no name", r.res.Iterations)
		}
		if r.seen[c.ID] {
			return stop(endreason.DuplicateCallID, "call ID %q is used twice", c.ID)
		}
		r.seen[c.ID] = true
	}
	if n := r.res.ToolCalls + len(calls); n > r.spec.Limits.ToolCalls {
		return stop(endreason.LimitToolCalls, "turn %d would make it %d tool calls, limit %d", r.res.Iterations, n, r.spec.Limits.ToolCalls)
	}
	r.messages = append(r.messages, resp.Message)
	return nil
}
