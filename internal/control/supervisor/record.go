//go:build linux

package supervisor

import (
	"context"
	"fmt"
	"strings"

	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"
)

// startBody is the body of a run.start record (docs/spec/audit-record.md).
type startBody struct {
	Backend  string            `json:"backend"`
	Why      string            `json:"backend_why"`
	Model    string            `json:"model,omitempty"`
	Policy   string            `json:"policy"`
	Limits   map[string]int    `json:"limits"`
	Tools    []string          `json:"tools"`
	Identity map[string]string `json:"identity"` // role → "uid:gid"
	Strength []string          `json:"strength"`
}

// endBody is the body of a run.end record.
type endBody struct {
	Reason       string `json:"reason"`
	Detail       string `json:"detail,omitempty"`
	Iterations   int64  `json:"iterations"`
	ToolCalls    int64  `json:"tool_calls"`
	Denied       int64  `json:"denied"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	ElapsedMS    int64  `json:"elapsed_ms"`
}

func (r *run) recordStart(ctx context.Context) error {
	c := r.s.cfg
	b := startBody{
		Backend: c.Hello.Backend, Why: c.BackendWhy, Model: c.Hello.Model, Policy: c.Policy, Strength: c.Strength,
		Limits: map[string]int{
			"iterations": c.Limits.Iterations, "tool_calls": c.Limits.ToolCalls, "elapsed_ms": c.Limits.ElapsedMS,
			"output_tokens": c.Limits.OutputTokens, "total_tokens": c.Limits.TotalTokens, "parallel": c.Limits.Parallel,
		},
		Identity: map[string]string{},
	}
	for _, t := range c.Hello.Tools {
		b.Tools = append(b.Tools, t.Name)
	}
	for _, role := range principal.Roles() {
		id := c.Identities[role]
		b.Identity[string(role)] = fmt.Sprintf("%d:%d", id.UID, id.GID)
	}
	rc, err := r.s.deps.Journal.Commit(ctx, gate.Tx{
		Entries: []audit.Entry{r.entry(audit.KindRunStart, b, []audit.Payload{{Name: "goal", Media: "text/plain", Data: []byte(r.goal)}})},
		Runs:    []gate.RunState{r.state("running", "")},
	})
	if err != nil {
		return fmt.Errorf("record the start of run %q: %w", r.id, err)
	}
	r.firstSeq = rc.FirstSeq
	return nil
}

func (r *run) entry(k audit.Kind, body any, payloads []audit.Payload) audit.Entry {
	return audit.Entry{
		Kind: k, At: r.s.deps.Now().UTC(), Run: r.id, Agent: r.s.cfg.Agent, Owner: r.s.cfg.Owner, Body: body, Payloads: payloads,
	}
}

func (r *run) state(state, reason string) gate.RunState {
	return gate.RunState{Run: r.id, Agent: r.s.cfg.Agent, Owner: r.s.cfg.Owner, State: state, Reason: reason}
}

// note adds a finished call to the totals.
func (r *run) note(res *gate.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch res.Permit.Call.Action {
	case call.ToolCall:
		r.totals.ToolCalls++
	case call.ModelGenerate:
		r.totals.Iterations++
	}
}

// clip bounds text from outside to about n bytes of valid UTF-8. A message with
// other bytes in it can't be encoded, and would be lost with all that it says.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
