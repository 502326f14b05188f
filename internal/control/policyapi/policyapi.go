//go:build linux

// Package policyapi checks, tests, formats and explains policies.
//
// State owned: none. Imports: api/{agentosv1,apierr}, control/{authority,
// policytest,statestore}, lib/fault, trusted/{budget,call,gate,policy}. Imported
// by: control/daemon. Invariant: an explanation comes from the gate that enforces,
// by the same configuration; nothing here changes a policy.
// Tests: policyapi_test.go.
package policyapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/apierr"
	"agentos/internal/control/authority"
	"agentos/internal/control/policytest"
	"agentos/internal/control/statestore"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/policy"
)

// Deps is all that the handlers may touch.
type Deps struct {
	// Active returns the sources of the policies in force.
	Active func() ([]policy.Source, error)
	// Authority builds the gate as a run would get it, over what the state
	// keeps; r is nil when there is no state yet.
	Authority func(ctx context.Context, r *statestore.Reader) (*authority.Authority, error)
	Reader    func(ctx context.Context, use func(*statestore.Reader) error) error
	Agent     string
	Owner     uint32
	Now       func() time.Time
}

// Service implements PolicyService.
type Service struct{ deps Deps }

// New starts nothing.
func New(d Deps) *Service { return &Service{d} }

func sources(files []*pb.SourceFile) []policy.Source {
	out := make([]policy.Source, len(files))
	for i, f := range files {
		out[i] = policy.Source{Name: f.GetName(), Text: f.GetData()}
	}
	return out
}

// Check compiles files, or the active set, and lists every problem.
func (s *Service) Check(_ context.Context, req *connect.Request[pb.PolicyCheckRequest]) (*connect.Response[pb.PolicyCheckResponse], error) {
	files := sources(req.Msg.GetFiles())
	if len(files) == 0 {
		var err error
		if files, err = s.deps.Active(); err != nil {
			return nil, apierr.ToConnect(err)
		}
	}
	out := &pb.PolicyCheckResponse{}
	set, err := policy.Compile(files)
	var problems policy.Problems
	if err != nil && !errors.As(err, &problems) {
		return nil, apierr.ToConnect(err)
	}
	if err == nil {
		out.Ok, out.Revision, out.Policies = true, set.Revision(), int32(len(set.Policies()))
		problems = set.Warnings()
	}
	for _, p := range problems {
		out.Problems = append(out.Problems, &pb.PolicyProblem{
			File: p.File, Line: int32(p.Line), Column: int32(p.Column), Policy: p.Policy, Message: p.Message, Severity: string(p.Severity),
		})
	}
	return connect.NewResponse(out), nil
}

// Test decides the cases of test files against policy files or the active set.
func (s *Service) Test(_ context.Context, req *connect.Request[pb.PolicyTestRequest]) (*connect.Response[pb.PolicyTestResponse], error) {
	files := sources(req.Msg.GetPolicies())
	tests := sources(req.Msg.GetTests())
	var err error
	if len(files) == 0 {
		if files, err = s.deps.Active(); err != nil {
			return nil, apierr.ToConnect(err)
		}
	}
	if len(tests) == 0 {
		tests = []policy.Source{policytest.Default()}
	}
	set, err := policy.Compile(files)
	if err != nil {
		return nil, apierr.ToConnect(fault.Wrap(err, fault.Usage, "correct the policies: `agentos policy check` lists every problem", "compile policies"))
	}
	var cases []policy.Case
	for _, f := range tests {
		cs, err := policytest.Parse(f)
		if err != nil {
			return nil, apierr.ToConnect(fault.Wrap(err, fault.Usage, "see docs/spec/policy.md for the format", "read policy tests"))
		}
		cases = append(cases, cs...)
	}
	out := &pb.PolicyTestResponse{}
	for _, r := range policy.RunTests(set, cases) {
		out.Results = append(out.Results, &pb.PolicyTestResult{
			File: r.File, Name: r.Name, Pass: r.Failure == "", Want: verdict(r.Allow), Got: verdict(r.Got.Allow), Rules: rules(r.Got.Rules), Detail: r.Failure,
		})
	}
	return connect.NewResponse(out), nil
}

func verdict(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

func rules(rs []policy.Rule) []*pb.Rule {
	out := make([]*pb.Rule, len(rs))
	for i, r := range rs {
		out[i] = &pb.Rule{Id: r.ID, Effect: r.Effect, File: r.File, Line: int32(r.Line), Reason: r.Reason}
	}
	return out
}

// Fmt formats one file.
func (s *Service) Fmt(_ context.Context, req *connect.Request[pb.PolicyFmtRequest]) (*connect.Response[pb.PolicyFmtResponse], error) {
	f := req.Msg.GetFile()
	b, err := policy.Fmt(policy.Source{Name: f.GetName(), Text: f.GetData()})
	if err != nil {
		return nil, apierr.ToConnect(fault.Wrap(err, fault.Usage, "correct the file: `agentos policy check` lists every problem", "format %q", f.GetName()))
	}
	return connect.NewResponse(&pb.PolicyFmtResponse{Data: b, Changed: string(b) != string(f.GetData())}), nil
}

// explainRun stands for the run that a described call would belong to.
const explainRun = "run-explain"

// Explain decides a recorded or described call as the gate would now.
func (s *Service) Explain(ctx context.Context, req *connect.Request[pb.PolicyExplainRequest]) (*connect.Response[pb.PolicyExplainResponse], error) {
	var out *pb.PolicyExplainResponse
	explain := func(r *statestore.Reader) error {
		c, recorded, err := s.call(ctx, r, req.Msg)
		if err != nil {
			return err
		}
		auth, err := s.deps.Authority(ctx, r)
		if err != nil {
			return err
		}
		if err := s.prepare(auth, c.Subject.Run); err != nil {
			return err
		}
		x := auth.Gate.Explain(ctx, c)
		out = render(x, recorded)
		if !x.Allowed && x.Denial.Stage == gate.StagePolicy {
			px := auth.Policies.Explain(authority.Request(&c, &x.Target))
			for _, m := range px.NearMisses {
				for _, f := range m.Missing {
					out.Missing = append(out.Missing, fmt.Sprintf("%s: %s", m.Rule.ID, f))
				}
			}
			if px.Next != "" {
				out.Next = px.Next
			}
		}
		return nil
	}
	err := s.deps.Reader(ctx, explain)
	if fault.KindOf(err) == fault.NotFound && req.Msg.GetCall() == "" {
		err = explain(nil) // no state yet: a described call needs none
	}
	return connect.NewResponse(out), apierr.ToConnect(err)
}

// prepare gives the call's run what a run gets. What a run of the past had left
// is over with it; a described call is the first of its run.
func (s *Service) prepare(auth *authority.Authority, run string) error {
	if run == explainRun {
		auth.Ledger.SetLimit(budget.RunKey(run), auth.RunLimits())
	}
	for i, g := range auth.RunGrants() {
		g.ID, g.Run = fmt.Sprintf("grant-%d:%s", i+1, g.Resource), run
		if err := auth.Grants.Add(g); err != nil {
			return err
		}
	}
	return nil
}

// call finds the recorded call or makes the described one; recorded says what
// was decided then.
func (s *Service) call(ctx context.Context, r *statestore.Reader, m *pb.PolicyExplainRequest) (c call.Call, recorded string, err error) {
	if m.GetCall() != "" {
		return s.recorded(ctx, r, m.GetCall())
	}
	subject := call.Subject{Owner: s.deps.Owner, Agent: s.deps.Agent, Run: explainRun}
	if m.GetAgent() != "" {
		subject.Agent = m.GetAgent()
	}
	action := call.Action(m.GetAction())
	switch action {
	case call.AgentStart:
		subject.Agent = ""
	case call.ToolCall, call.ModelGenerate:
	default:
		return c, "", fault.New(fault.Usage, "use agent.start, tool.call or model.generate", "explain action %.80q", m.GetAction())
	}
	c, err = call.New("call-explain", subject, action, m.GetResource(), []byte(m.GetArgs()), s.deps.Now())
	if err != nil {
		return c, "", fault.Wrap(err, fault.Usage, "give the arguments as one JSON object", "read arguments")
	}
	return c, "", nil
}

func (s *Service) recorded(ctx context.Context, r *statestore.Reader, ref string) (c call.Call, recorded string, err error) {
	id, err := r.ResolveCall(ctx, ref)
	if err != nil {
		return c, "", err
	}
	items, err := r.Call(ctx, id)
	if err != nil {
		return c, "", err
	}
	rec := items[0].Record
	var b struct {
		Action   call.Action
		Resource string
		Stage    string
		Reason   string
	}
	if err := json.Unmarshal(rec.Body, &b); err != nil {
		return c, "", fault.Wrap(err, fault.Corrupt, "run `agentos audit verify`", "read record %d", rec.Seq)
	}
	args, err := r.Payload(ctx, rec.Payloads["args"])
	if err != nil {
		return c, "", err
	}
	recorded = "allowed"
	if b.Stage != "" { // only a refusal has one
		recorded = fmt.Sprintf("denied at %s: %s", b.Stage, b.Reason)
	}
	subject := call.Subject{Owner: rec.Owner, Agent: rec.Agent, Run: rec.Run}
	c, err = call.New(id, subject, b.Action, b.Resource, args.Data, rec.At)
	return c, recorded, err
}

func render(x gate.Explanation, recorded string) *pb.PolicyExplainResponse {
	out := &pb.PolicyExplainResponse{Allowed: x.Allowed, Rules: rules(x.Decision.Rules), Revision: x.Decision.Revision, Recorded: recorded}
	for _, t := range x.Stages {
		out.Stages = append(out.Stages, &pb.StageResult{Stage: string(t.Stage), Ok: t.OK, Detail: t.Detail})
	}
	if x.Denial != nil {
		out.Next = x.Denial.Next
	}
	return out
}
