package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"agentos/internal/lib/canon"
	"agentos/internal/lib/chat"
)

// maxResult bounds the text of one result in the conversation, in bytes. What
// was cut is said in the text, so that the model knows.
const maxResult = 128 << 10

// outcome is one call's result; err ends the run.
type outcome struct {
	ToolResult
	args []byte // canonical, or the raw text where it is no object
	err  error
}

// act makes the calls of one turn and appends their results in call order.
// Neighbouring read-only calls run in parallel; any other call runs alone, after
// those before it and before those behind it.
func (r *run) act(ctx context.Context, calls []chat.ToolCall) *ending {
	out := make([]outcome, len(calls))
	done := 0
	for done < len(calls) {
		n := r.batch(calls[done:])
		r.together(ctx, calls[done:done+n], out[done:done+n])
		done += n
		if r.mustStop(out[done-n : done]) {
			break
		}
	}
	r.res.ToolCalls += done
	for i, c := range calls[:done] {
		if out[i].err != nil {
			return r.broken(ctx, out[i].err)
		}
		r.messages = append(r.messages, chat.Message{Role: chat.ToolRole, ToolCallID: c.ID, Text: out[i].Text})
	}
	for _, o := range out[:done] {
		if o.Exhausted != "" {
			return stop(budgetReason(o.Exhausted), "%s", o.Text)
		}
	}
	if end := ended(ctx); end != nil {
		return end
	}
	return r.progress.turn(calls, out)
}

// batch counts the calls at the head that may run together, 1 at least.
func (r *run) batch(calls []chat.ToolCall) int {
	n := 0
	for n < len(calls) && r.tools[calls[n].Name].ReadOnly {
		n++
	}
	return max(n, 1)
}

func (r *run) mustStop(out []outcome) bool {
	for _, o := range out {
		if o.err != nil || o.Exhausted != "" {
			return true
		}
	}
	return false
}

// together makes the calls with at most Parallel at once, and returns when all
// have ended.
func (r *run) together(ctx context.Context, calls []chat.ToolCall, out []outcome) {
	slots := make(chan struct{}, r.spec.Limits.Parallel)
	var wg sync.WaitGroup
	for i, c := range calls {
		slots <- struct{}{}
		wg.Go(func() {
			out[i] = r.call(ctx, c)
			<-slots
		})
	}
	wg.Wait()
}

// call makes one call. What the model got wrong comes back as a result that says
// so; nothing is guessed or repaired.
func (r *run) call(ctx context.Context, c chat.ToolCall) outcome {
	if _, ok := r.tools[c.Name]; !ok {
		return outcome{args: []byte(c.Arguments), ToolResult: ToolResult{
			Error: true, Text: fmt.Sprintf("error: there is no tool %q; use one of the offered tools", chat.Clean(c.Name, chat.MaxNameLen)),
		}}
	}
	text := c.Arguments
	if strings.TrimSpace(text) == "" {
		text = "{}" // several models send nothing for no arguments
	}
	args, err := canon.Object([]byte(text))
	if err != nil {
		return outcome{args: []byte(c.Arguments), ToolResult: ToolResult{
			Error: true, Text: "error: the arguments are not one JSON object: " + chat.Clean(err.Error(), maxDetail),
		}}
	}
	if err := context.Cause(ctx); err != nil { // no call begins after the end
		return outcome{args: args, err: err}
	}
	res, err := r.deps.Tools.Call(ctx, c.Name, json.RawMessage(args))
	res.Text = cut(res.Text)
	return outcome{ToolResult: res, args: args, err: err}
}

func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxResult {
		return s
	}
	return strings.ToValidUTF8(s[:maxResult], "") + fmt.Sprintf("\n[cut: %d of %d bytes shown]", maxResult, len(s))
}
