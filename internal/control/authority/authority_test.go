package authority

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/control/config"
	"agentos/internal/control/registry"
	"agentos/internal/execution/tool"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
)

func build(t *testing.T, edit func(*config.Config)) (*Authority, error) {
	t.Helper()
	c := config.Config{Project: "p", Agent: config.Agent{ID: "a", Limits: config.Limits{Iterations: 8, ToolCalls: 16, TotalTokens: 100}}}
	if edit != nil {
		edit(&c)
	}
	tools, err := catalog.ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Settings: c, Owner: 1000, Tools: tools, Model: registry.Model{Backend: "rules", Local: true, MaxOutput: 10, Timeout: time.Second}},
		nil, budget.NewLedger(budget.State{}), time.Now)
}

func mk(t *testing.T, s call.Subject, a call.Action, res, args string) call.Call {
	t.Helper()
	c, err := call.New("call-1", s, a, res, []byte(args), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestExplain walks the shipped authority: what an owner's agent may do, and
// where each other call stops.
func TestExplain(t *testing.T) {
	agent := call.Subject{Owner: 1000, Agent: "a", Run: "r"}
	for name, tc := range map[string]struct {
		edit func(*config.Config)
		c    call.Call
		stop gate.Stage // "" when allowed
	}{
		"inspect":                  {nil, mk(t, agent, call.ToolCall, "system_inspect", `{}`), ""},
		"own agent starts":         {nil, mk(t, call.Subject{Owner: 1000, Run: "r"}, call.AgentStart, "a", `{"goal_hash":"x"}`), ""},
		"another's agent starts":   {nil, mk(t, call.Subject{Owner: 1001, Run: "r"}, call.AgentStart, "a", `{"goal_hash":"x"}`), gate.StagePolicy},
		"another run's grants":     {nil, mk(t, call.Subject{Owner: 1000, Agent: "a", Run: "other"}, call.ToolCall, "system_inspect", `{}`), gate.StageCapability},
		"C-10: no allow list":      {nil, mk(t, agent, call.ToolCall, "service_inspect", `{"unit":"a.service"}`), gate.StageCapability},
		"C-10: empty allow list":   {func(c *config.Config) { c.Tools.ServiceAllowlist = []string{} }, mk(t, agent, call.ToolCall, "service_inspect", `{"unit":"a.service"}`), gate.StageCapability},
		"listed unit":              {func(c *config.Config) { c.Tools.ServiceAllowlist = []string{"a.service"} }, mk(t, agent, call.ToolCall, "service_inspect", `{"unit":"a.service"}`), ""},
		"budget of the owner":      {func(c *config.Config) { c.Budgets = []config.Budget{{Level: "owner", Resource: budget.ToolCalls}} }, mk(t, agent, call.ToolCall, "system_inspect", `{}`), gate.StageBudget},
		"budget of the project":    {func(c *config.Config) { c.Budgets = []config.Budget{{Level: "project", Resource: budget.ToolCalls}} }, mk(t, agent, call.ToolCall, "system_inspect", `{}`), gate.StageBudget},
		"budget of the agent":      {func(c *config.Config) { c.Budgets = []config.Budget{{Level: "agent", Resource: budget.ToolCalls}} }, mk(t, agent, call.ToolCall, "system_inspect", `{}`), gate.StageBudget},
		"budget of something else": {func(c *config.Config) { c.Budgets = []config.Budget{{Level: "agent", Resource: budget.Tokens}} }, mk(t, agent, call.ToolCall, "system_inspect", `{}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := build(t, tc.edit)
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range a.RunGrants() {
				g.ID, g.Run = string(rune('a'+i)), "r"
				if err := a.Grants.Add(g); err != nil {
					t.Fatal(err)
				}
			}
			x := a.Gate.Explain(context.Background(), tc.c)
			got := gate.Stage("")
			if !x.Allowed {
				got = x.Denial.Stage
			}
			if got != tc.stop {
				t.Errorf("stopped at %q, want %q: %+v", got, tc.stop, x.Stages)
			}
		})
	}
}

func TestOffered(t *testing.T) {
	for _, tc := range []struct {
		allow []string
		want  []string
	}{
		{nil, []string{"system_inspect", "npu_inspect", "package_query"}},
		{[]string{"a.service"}, []string{"system_inspect", "npu_inspect", "package_query", "service_inspect", "journal_read"}},
	} {
		a, err := build(t, func(c *config.Config) { c.Tools.ServiceAllowlist = tc.allow })
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.want, names(a.Offered)); d != "" {
			t.Error(d)
		}
	}
}

func names(ds []tool.Descriptor) (out []string) {
	for _, d := range ds {
		out = append(out, d.Name)
	}
	return out
}

// TestPolicyDirectory: a directory that is missing, a file that doesn't compile
// or is no file stops the start; it is never skipped.
func TestPolicyDirectory(t *testing.T) {
	dir := t.TempDir()
	use := func(c *config.Config) { c.Policy.Dir = dir }
	if _, err := build(t, func(c *config.Config) { c.Policy.Dir = filepath.Join(dir, "missing") }); fault.KindOf(err) != fault.Usage {
		t.Errorf("missing directory: %v", err)
	}
	before, err := build(t, use)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("notes.txt", "not a policy")
	write("own.cedar", `@id("x") @reason("r") forbid (principal, action, resource);`)
	after, err := build(t, use)
	if err != nil || after.Policies.Revision() == before.Policies.Revision() {
		t.Fatalf("own policy has no effect: %v", err)
	}
	write("own.cedar", `permit everything`)
	if _, err := build(t, use); fault.KindOf(err) != fault.Usage {
		t.Errorf("broken file: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "own.cedar")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.cedar"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := build(t, use); fault.KindOf(err) != fault.Usage {
		t.Errorf("directory named like a policy: %v", err)
	}
}
