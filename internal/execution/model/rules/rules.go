// Package rules answers goals about this machine without any model: a table of
// intents, each with the phrases that mean it, the read-only calls that it
// plans, and the report that it writes from their results.
//
// State owned: none; the same request always gives the same answer. Imports:
// execution/model, lib/chat, go-json-experiment/json. Imported by: the shim (as
// a backend), the CLI (Intents, for its help). Portable. Invariants: a goal
// that no intent matches as a whole, or that matches several, is refused with
// the list of what is understood, never guessed; only tools that the request
// offers are planned; tool results are untrusted: cleaned, bounded, and missing
// members are reported as not reported.
// Page: docs/spec/rules.md, held in step by a test. Tests: *_test.go.
package rules

import (
	"context"
	"fmt"
	"strings"

	"agentos/internal/execution/model"
	"agentos/internal/lib/chat"
)

// ModelName is what responses carry as their model.
const ModelName = "rules-v1"

const maxReport = 6 << 10 // bytes

// Backend is the rules backend; safe for concurrent use.
type Backend struct{ intents []intent }

// New compiles the table. The error is a phrase that doesn't compile, which the
// tests exclude.
func New() (*Backend, error) {
	b := &Backend{intents: table()}
	for i := range b.intents {
		for _, p := range b.intents[i].patterns {
			m, err := p.compile()
			if err != nil {
				return nil, err
			}
			b.intents[i].matchers = append(b.intents[i].matchers, m)
		}
	}
	return b, nil
}

// Name is "rules".
func (*Backend) Name() string { return "rules" }

// Generate plans the calls for the goal (the last user message), or, when the
// conversation already holds their results, writes the report. No model runs,
// so the usage is zero. A goal that it doesn't understand is a *model.Error with
// model.ReasonNotUnderstood.
func (b *Backend) Generate(ctx context.Context, req chat.Request, sink func(string)) (chat.Response, error) {
	if err := ctx.Err(); err != nil {
		return chat.Response{}, model.FromContext(ctx)
	}
	goal, after := split(req.Messages)
	m, err := b.understand(goal)
	if err != nil {
		return chat.Response{}, err
	}
	out := chat.Response{
		ID: fmt.Sprintf("rules-%d", len(req.Messages)), Model: ModelName,
		Message: chat.Message{Role: chat.Assistant}, Stop: chat.StopEnd,
	}
	if len(after) == 0 {
		if calls := plan(m, req, out.ID); len(calls) > 0 {
			out.Message.ToolCalls, out.Stop = calls, chat.StopToolCalls
			return out, nil
		}
	}
	text := clip(write(m, gather(m, req, after)), maxReport)
	if limit := 4 * req.MaxOutputTokens; req.MaxOutputTokens > 0 && len(text) > limit {
		text, out.Stop = clip(text, limit), chat.StopLength
	}
	out.Message.Text = text
	if req.Stream && sink != nil {
		for line := range strings.Lines(text) {
			sink(line)
		}
	}
	return out, nil
}

// split returns the last user message and what came after it.
func split(messages []chat.Message) (goal string, after []chat.Message) {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == chat.User {
			return messages[i].Text, messages[i+1:]
		}
	}
	return "", nil
}

// plan makes the intent's calls with those tools that are offered. IDs are
// unique in a conversation, because it has grown by the next time.
func plan(m match, req chat.Request, prefix string) []chat.ToolCall {
	if req.ToolChoice == chat.ChooseNone {
		return nil
	}
	offered := map[string]bool{}
	for _, t := range req.Tools {
		offered[t.Name] = true
	}
	var calls []chat.ToolCall
	for i, s := range m.steps() {
		if offered[s.tool] {
			calls = append(calls, chat.ToolCall{ID: fmt.Sprintf("%s-%d", prefix, i), Name: s.tool, Arguments: s.arguments})
		}
	}
	return calls
}

// clip cuts at a character and says so.
func clip(s string, limit int) string {
	const mark = "\n(cut)"
	if len(s) <= limit {
		return s
	}
	cut := strings.ToValidUTF8(s[:max(limit-len(mark), 0)], "")
	if limit < len(mark) {
		return cut
	}
	return cut + mark
}
