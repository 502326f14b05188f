//go:build linux

package policyapi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/apierr"
	"agentos/internal/control/authority"
	"agentos/internal/control/config"
	"agentos/internal/control/registry"
	"agentos/internal/control/statestore"
	"agentos/internal/execution/tool/catalog"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
)

// bench is the service over a policy directory and a state directory.
type bench struct {
	t        *testing.T
	policies string
	state    string // empty: there is none
	cfg      config.Config
	svc      *Service
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, policies: t.TempDir()}
	b.cfg = config.Config{Project: "p", Agent: config.Agent{ID: "a", Limits: config.Limits{Iterations: 8, ToolCalls: 16, TotalTokens: 100}}}
	b.cfg.Policy.Dir = b.policies
	b.svc = New(Deps{
		Active: func() ([]policy.Source, error) { return authority.Sources(b.policies) },
		Authority: func(ctx context.Context, r *statestore.Reader) (*authority.Authority, error) {
			var st budget.State
			if r != nil {
				var err error
				if st, err = r.Budget(ctx); err != nil {
					return nil, err
				}
			}
			return b.authority(nil, st)
		},
		Reader: func(ctx context.Context, use func(*statestore.Reader) error) error {
			r, err := statestore.OpenReadOnly(ctx, filepath.Join(t.TempDir(), "none"))
			if b.state != "" {
				r, err = statestore.OpenReadOnly(ctx, b.state)
			}
			if err != nil {
				return err
			}
			defer r.Close()
			return use(r)
		},
		Agent: "a", Owner: 1000, Now: time.Now,
	})
	return b
}

func (b *bench) authority(j gate.Journal, st budget.State) (*authority.Authority, error) {
	tools, err := catalog.ReadOnly()
	if err != nil {
		return nil, err
	}
	return authority.New(authority.Config{Settings: b.cfg, Owner: 1000, Tools: tools,
		Model: registry.Model{Backend: "rules", Local: true, MaxOutput: 10, Timeout: time.Second}}, j, budget.NewLedger(st), time.Now)
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.policies, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// record makes calls through the gate of a run into a new state directory.
func (b *bench) record(calls ...call.Call) {
	b.t.Helper()
	b.state = filepath.Join(b.t.TempDir(), "state")
	s, err := statestore.Open(b.t.Context(), statestore.Config{Dir: b.state, Now: time.Now})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			b.t.Fatal(err)
		}
	}()
	a, err := b.authority(s, budget.State{})
	if err != nil {
		b.t.Fatal(err)
	}
	for i, g := range a.RunGrants() {
		g.ID, g.Run = string(rune('a'+i)), "run-1"
		if err := a.Grants.Add(g); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := a.Gate.OpenRun("run-1"); err != nil {
		b.t.Fatal(err)
	}
	for _, c := range calls {
		_, err := a.Gate.Do(b.t.Context(), c, nil, func(context.Context, *gate.Permit) gate.Outcome {
			return gate.Outcome{Status: call.OK, Used: budget.Amount{budget.ToolCalls: 1}}
		})
		var d *gate.Denial
		if err != nil && !errors.As(err, &d) {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) toolCall(id, name, args string) call.Call {
	b.t.Helper()
	c, err := call.New(id, call.Subject{Owner: 1000, Agent: "a", Run: "run-1"}, call.ToolCall, name, []byte(args), time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) explain(req *pb.PolicyExplainRequest) (*pb.PolicyExplainResponse, error) {
	r, err := b.svc.Explain(b.t.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, apierr.FromConnect(err)
	}
	return r.Msg, nil
}

func last(x *pb.PolicyExplainResponse) string {
	s := x.GetStages()[len(x.GetStages())-1]
	if s.GetOk() {
		return "allowed"
	}
	return s.GetStage()
}

const noPackages = `@id("no-packages") @reason("not here")
forbid (principal, action == Action::"tool.call", resource == Tool::"package_query");
`

// TestExplainDescribed: what the gate would say of a call, without any state.
func TestExplainDescribed(t *testing.T) {
	for name, tc := range map[string]struct {
		req    *pb.PolicyExplainRequest
		edit   func(*bench)
		stop   string // last stage, or allowed
		reason string // of that stage
		rule   string // that decided
	}{
		"tool":         {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query", Args: `{"name":"x"}`}, nil, "allowed", "", "normal-reads"},
		"model":        {&pb.PolicyExplainRequest{Action: "model.generate", Resource: "rules", Args: `{"context":"sha256:x","context_bytes":9,"max_output_tokens":5,"model":"","stream":false}`}, nil, "allowed", "", ""},
		"start":        {&pb.PolicyExplainRequest{Action: "agent.start", Resource: "a", Args: `{"goal_hash":"x"}`}, nil, "allowed", "", ""},
		"another name": {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query", Args: `{"name":"x"}`, Agent: "b"}, nil, "allowed", "", ""},
		"forbidden": {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query", Args: `{"name":"x"}`},
			func(b *bench) { b.write("own.cedar", noPackages) }, "policy", "no-packages", "no-packages"},
		"unknown tool":  {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "rm"}, nil, "schema", "no tool", ""},
		"bad argument":  {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query", Args: `{"zzz":1}`}, nil, "schema", "schema", ""},
		"no allow list": {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "service_inspect", Args: `{"unit":"a.service"}`}, nil, "capability", "", ""},
		"budget of a run": {&pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query", Args: `{"name":"x"}`},
			func(b *bench) { b.cfg.Agent.Limits.ToolCalls = 0 }, "budget", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if tc.edit != nil {
				tc.edit(b)
			}
			x, err := b.explain(tc.req)
			if err != nil {
				t.Fatal(err)
			}
			if last(x) != tc.stop || x.GetAllowed() != (tc.stop == "allowed") || x.GetRecorded() != "" {
				t.Errorf("%v", x)
			}
			if s := x.GetStages()[len(x.GetStages())-1]; !strings.Contains(s.GetDetail(), tc.reason) {
				t.Errorf("%q, want %q in it", s.GetDetail(), tc.reason)
			}
			if tc.rule != "" && (len(x.GetRules()) == 0 || x.GetRules()[0].GetId() != tc.rule || x.GetRevision() == "") {
				t.Errorf("rules %v, revision %q", x.GetRules(), x.GetRevision())
			}
			if !x.GetAllowed() && x.GetNext() == "" && tc.stop != "budget" {
				t.Error("refused without a next step")
			}
		})
	}
}

// TestMissingFacts: a refusal by the policy names what the nearest rule wants.
func TestMissingFacts(t *testing.T) {
	b := newBench(t)
	x, err := b.explain(&pb.PolicyExplainRequest{Action: "agent.start", Resource: "a", Args: `{"goal_hash":"x"}`, Agent: "ignored"})
	if err != nil || !x.GetAllowed() {
		t.Fatalf("%v %v", x, err)
	}
	b.svc.deps.Owner = 1001 // somebody else's
	x, err = b.explain(&pb.PolicyExplainRequest{Action: "agent.start", Resource: "a", Args: `{"goal_hash":"x"}`})
	if err != nil || last(x) != "policy" || len(x.GetMissing()) == 0 || x.GetNext() == "" {
		t.Fatalf("%v %v", x, err)
	}
	if m := x.GetMissing()[0]; !strings.Contains(m, ": ") || !strings.Contains(m, "owner") {
		t.Errorf("missing %q", x.GetMissing())
	}
}

// TestExplainRecorded: what was decided then stands beside what would be now.
func TestExplainRecorded(t *testing.T) {
	b := newBench(t)
	b.record(b.toolCall("call-aa1", "package_query", `{"name":"x"}`), b.toolCall("call-aa2", "service_inspect", `{"unit":"x.service"}`))
	type verdict struct {
		Recorded, Now string
	}
	ask := func(ref string) verdict {
		t.Helper()
		x, err := b.explain(&pb.PolicyExplainRequest{Call: ref})
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		return verdict{strings.SplitAfter(x.GetRecorded(), ":")[0], last(x)}
	}
	if d := cmp.Diff([]verdict{{"allowed", "allowed"}, {"denied at capability:", "capability"}}, []verdict{ask("call-aa1"), ask("call-aa2")}); d != "" {
		t.Errorf("before: %s", d)
	}
	b.write("own.cedar", noPackages)
	b.cfg.Tools.ServiceAllowlist = []string{"x.service"}
	if d := cmp.Diff([]verdict{{"allowed", "policy"}, {"denied at capability:", "allowed"}}, []verdict{ask("call-aa1"), ask("call-aa2")}); d != "" {
		t.Errorf("after a change: %s", d)
	}
	for ref, want := range map[string]fault.Kind{"call-aa": fault.Usage, "zz": fault.NotFound} {
		if x, err := b.explain(&pb.PolicyExplainRequest{Call: ref}); fault.KindOf(err) != want {
			t.Errorf("%s: %v %v", ref, x, err)
		}
	}
	b.state = ""
	if x, err := b.explain(&pb.PolicyExplainRequest{Call: "call-aa1"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a recorded call without a state: %v %v", x, err)
	}
}

// TestExplainChangesNothing: asking costs nothing and leaves nothing.
func TestExplainChangesNothing(t *testing.T) {
	b := newBench(t)
	b.record(b.toolCall("call-1", "package_query", `{"name":"x"}`))
	look := func() (st budget.State, size uint64) {
		r, err := statestore.OpenReadOnly(t.Context(), b.state)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, size, err = r.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st, err = r.Budget(t.Context()); err != nil {
			t.Fatal(err)
		}
		return st, size
	}
	st, size := look()
	for range 3 {
		if x, err := b.explain(&pb.PolicyExplainRequest{Call: "call-1"}); err != nil || !x.GetAllowed() {
			t.Fatalf("%v %v", x, err)
		}
	}
	st2, size2 := look()
	if d := cmp.Diff(st, st2); d != "" || size != size2 {
		t.Errorf("%d and %d records: %s", size, size2, d)
	}
}

// TestExplainCountsWhatWasUsed: the state's budgets are those of the gate.
func TestExplainCountsWhatWasUsed(t *testing.T) {
	b := newBench(t)
	b.record(b.toolCall("call-1", "package_query", `{"name":"x"}`))
	req := &pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query", Args: `{"name":"x"}`}
	for limit, want := range map[int64]string{1: "budget", 2: "allowed"} {
		b.cfg.Budgets = []config.Budget{{Level: "owner", Resource: budget.ToolCalls, Limit: limit}}
		if x, err := b.explain(req); err != nil || last(x) != want {
			t.Errorf("limit %d: %v %v", limit, x, err)
		}
	}
}

func TestExplainRefuses(t *testing.T) {
	b := newBench(t)
	for name, req := range map[string]*pb.PolicyExplainRequest{
		"nothing":        {},
		"unknown action": {Action: "file.delete", Resource: "x"},
		"no JSON":        {Action: "tool.call", Resource: "package_query", Args: `{`},
		"no object":      {Action: "tool.call", Resource: "package_query", Args: `[1]`},
		"twice":          {Action: "tool.call", Resource: "package_query", Args: `{"a":1,"a":2}`},
	} {
		if x, err := b.explain(req); fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" {
			t.Errorf("%s: %v %v", name, x, err)
		}
	}
	b.write("own.cedar", "permit everything")
	if x, err := b.explain(&pb.PolicyExplainRequest{Action: "tool.call", Resource: "package_query"}); fault.KindOf(err) != fault.Usage {
		t.Errorf("policies that don't compile: %v %v", x, err)
	}
}

func TestCheck(t *testing.T) {
	b := newBench(t)
	check := func(files ...*pb.SourceFile) (*pb.PolicyCheckResponse, error) {
		r, err := b.svc.Check(t.Context(), connect.NewRequest(&pb.PolicyCheckRequest{Files: files}))
		if err != nil {
			return nil, apierr.FromConnect(err)
		}
		return r.Msg, nil
	}
	shipped, err := check()
	if err != nil || !shipped.GetOk() || shipped.GetPolicies() == 0 || shipped.GetRevision() == "" {
		t.Fatalf("%v %v", shipped, err)
	}
	b.write("own.cedar", noPackages)
	if own, err := check(); err != nil || own.GetPolicies() != shipped.GetPolicies()+1 || own.GetRevision() == shipped.GetRevision() {
		t.Errorf("own policy: %v %v", own, err)
	}
	if one, err := check(&pb.SourceFile{Name: "x.cedar", Data: []byte(noPackages)}); err != nil || !one.GetOk() || one.GetPolicies() != 1 {
		t.Errorf("one file: %v %v", one, err)
	}
	for name, text := range map[string]string{
		"syntax":       "@id(\"x\") @reason(\"r\")\nforbid (principal action);",
		"no id":        "forbid (principal, action, resource);",
		"unknown":      "@id(\"x\") @reason(\"r\") forbid (principal, action == Action::\"zzz\", resource);",
		"not text":     "@id(\"x\") @reason(\"\xff\") forbid (principal, action, resource);",
		"two of an id": noPackages + noPackages,
	} {
		r, err := check(&pb.SourceFile{Name: "bad.cedar", Data: []byte(text)})
		if err != nil || r.GetOk() || len(r.GetProblems()) == 0 || r.GetRevision() != "" {
			t.Errorf("%s: %v %v", name, r, err)
			continue
		}
		if p := r.GetProblems()[0]; p.GetFile() != "bad.cedar" || p.GetLine() < 1 || p.GetMessage() == "" || p.GetSeverity() != "error" {
			t.Errorf("%s: %v", name, p)
		}
	}
	b.policies = filepath.Join(b.policies, "gone")
	if r, err := check(); fault.KindOf(err) != fault.Usage {
		t.Errorf("no directory: %v %v", r, err)
	}
}

func TestTest(t *testing.T) {
	b := newBench(t)
	run := func(req *pb.PolicyTestRequest) ([]*pb.PolicyTestResult, error) {
		r, err := b.svc.Test(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, apierr.FromConnect(err)
		}
		return r.Msg.GetResults(), nil
	}
	failures := func(rs []*pb.PolicyTestResult) (n int) {
		for _, r := range rs {
			if !r.GetPass() {
				n++
				if r.GetDetail() == "" {
					t.Errorf("failure without a reason: %v", r)
				}
			}
		}
		return n
	}
	rs, err := run(&pb.PolicyTestRequest{})
	if err != nil || len(rs) == 0 || failures(rs) != 0 {
		t.Fatalf("shipped: %v %v", rs, err)
	}
	b.write("own.cedar", `@id("none") @reason("nothing") forbid (principal, action, resource);`)
	if rs, err = run(&pb.PolicyTestRequest{}); err != nil || failures(rs) == 0 {
		t.Errorf("own policies have no effect on the shipped cases: %v", err)
	}
	all := []*pb.SourceFile{{Name: "all.cedar", Data: []byte(`@id("all") @reason("r") permit (principal, action, resource);`)}}
	if rs, err = run(&pb.PolicyTestRequest{Policies: all}); err != nil || failures(rs) == 0 {
		t.Errorf("given policies: %v", err)
	}
	for name, req := range map[string]*pb.PolicyTestRequest{
		"policies": {Policies: []*pb.SourceFile{{Name: "x", Data: []byte("permit everything")}}},
		"tests":    {Policies: all, Tests: []*pb.SourceFile{{Name: "x", Data: []byte("{")}}},
	} {
		if _, err := run(req); fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFmt(t *testing.T) {
	b := newBench(t)
	format := func(text string) (*pb.PolicyFmtResponse, error) {
		r, err := b.svc.Fmt(t.Context(), connect.NewRequest(&pb.PolicyFmtRequest{File: &pb.SourceFile{Name: "x.cedar", Data: []byte(text)}}))
		if err != nil {
			return nil, apierr.FromConnect(err)
		}
		return r.Msg, nil
	}
	ugly := "@id(\"x\")   @reason(\"r\") forbid(principal,action,resource) ;"
	r, err := format(ugly)
	if err != nil || !r.GetChanged() {
		t.Fatalf("%v %v", r, err)
	}
	if again, err := format(string(r.GetData())); err != nil || again.GetChanged() || string(again.GetData()) != string(r.GetData()) {
		t.Errorf("not stable: %v %v", again, err)
	}
	if r, err := format("permit everything"); fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" {
		t.Errorf("%v %v", r, err)
	}
}
