package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"agentos/internal/api/agentosv1"
	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/api/apierr"
	"agentos/internal/api/wire"
	"agentos/internal/lib/fault"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fakeDaemon is an agentosd with canned answers. FAKE chooses how it behaves;
// FAKE_LOG, if set, gets what it was started with and how it ended.
func fakeDaemon() int {
	signal.Ignore(os.Interrupt)
	note("args %s", strings.Join(os.Args[1:], " "))
	switch os.Getenv("FAKE") {
	case "locked":
		fmt.Fprintln(os.Stderr, "level=info msg=starting")
		fmt.Fprintln(os.Stderr, `agentosd: lock state "/s": another agentosd has it`)
		fmt.Fprintln(os.Stderr, "next: wait for it, or choose another --state-dir")
		return fault.Conflict.ExitCode()
	case "crash":
		fmt.Fprintln(os.Stderr, "something \x1b[31mterrible\x1b[0m")
		return 7
	case "quit":
		return 0
	case "hang":
		signal.Ignore(syscall.SIGTERM)
		note("pid %d", os.Getpid())
		<-time.After(30 * time.Second) // bounded, should a broken client forget it
	}
	conn, err := wire.Inherited()
	if err != nil {
		fmt.Fprintf(os.Stderr, "agentosd: %v\nnext: %s\n", err, fault.NextOf(err))
		return fault.KindOf(err).ExitCode()
	}
	mux := http.NewServeMux()
	mux.Handle(agentosv1connect.NewAgentServiceHandler(fake{}))
	mux.Handle(agentosv1connect.NewAuditServiceHandler(fake{}))
	mux.Handle(agentosv1connect.NewPolicyServiceHandler(fakePolicy{}))
	mux.Handle(agentosv1connect.NewHostServiceHandler(fake{}))
	mux.Handle(agentosv1connect.NewRunServiceHandler(fakeRun{}))
	if err := wire.Serve(context.Background(), conn, mux); err != nil {
		fmt.Fprintf(os.Stderr, "agentosd: serve: %v\n", err)
		return 1
	}
	note("ended")
	if os.Getenv("FAKE") == "bad-end" {
		fmt.Fprintln(os.Stderr, "agentosd: write final record: disk full\nnext: make room")
		return fault.Unavailable.ExitCode()
	}
	return 0
}

func note(format string, args ...any) {
	if p := os.Getenv("FAKE_LOG"); p != "" {
		if f, err := os.OpenFile(p, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			fmt.Fprintf(f, format+"\n", args...)
			f.Close()
		}
	}
}

type fake struct{}

var t0 = time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)

const (
	runID     = "run-01J8ZQ4M6T0000000000000000"
	call1     = "call-01J8ZQ4M6T0000000000000001"
	call2     = "call-01J8ZQ4M6T0000000000000002"
	call3     = "call-01J8ZQ4M6T0000000000000003"
	policyRev = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func (fake) Once(ctx context.Context, r *connect.Request[agentosv1.OnceRequest], s *connect.ServerStream[agentosv1.RunEvent]) error {
	goal := r.Msg.GetGoal()
	note("goal %q", goal)
	switch os.Getenv("FAKE") {
	case "denied":
		return apierr.ToConnect(fault.New(fault.Denied, "ask the owner", "start agent %q: no rule permits it", "default-agent"))
	case "die":
		fmt.Fprintln(os.Stderr, "panic: \x1b[2Jboom")
		os.Exit(2)
	}
	at := t0
	var failed error
	send := func(ev *agentosv1.RunEvent) {
		at = at.Add(250 * time.Millisecond)
		ev.At, ev.Run = timestamppb.New(at), runID
		if failed == nil {
			failed = s.Send(ev)
		}
		if d, err := time.ParseDuration(os.Getenv("FAKE_PACE")); err == nil {
			<-time.After(d) // for looking at it by eye
		}
	}
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Started{Started: &agentosv1.Started{
		Agent: "default-agent", OwnerUid: 1000, AgentUid: 62001, AgentGid: 62001, Backend: "rules", BackendWhy: "no socket is configured",
		PolicyRevision: policyRev, Tools: []string{"system_inspect", "service_inspect"}, Limits: map[string]int64{"iterations": 8},
		Strength: []string{"own UID", "no_new_privs", "Landlock without files", "seccomp"}, Mode: "single-run"}}})
	if os.Getenv("FAKE") == "wait" {
		<-ctx.Done()
		note("run cancelled")
		return apierr.ToConnect(ctx.Err())
	}
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Notice{Notice: &agentosv1.Notice{Text: "AGENTOS_TYPO has no effect\x1b[5m"}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Proposed{Proposed: &agentosv1.CallProposed{Call: call1, Action: "model.generate", Resource: "rules", Args: `{"messages":3}`}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Decided{Decided: &agentosv1.CallDecided{Call: call1, Allowed: true, Rules: []*agentosv1.Rule{rule("local-models")}}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Text{Text: &agentosv1.TextDelta{Text: "I will look at\nthe machine"}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_CallEnded{CallEnded: &agentosv1.CallEnded{Call: call1, Action: "model.generate", Resource: "rules", Status: "ok", DurationUs: 1800, InputTokens: 321, OutputTokens: 45}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Proposed{Proposed: &agentosv1.CallProposed{Call: call2, Action: "tool.call", Resource: "system_inspect", Args: `{}`}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Proposed{Proposed: &agentosv1.CallProposed{Call: call3, Action: "tool.call", Resource: "service_inspect", Args: `{"unit":"ssh.service"}`}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Decided{Decided: &agentosv1.CallDecided{Call: call2, Allowed: true, Rules: []*agentosv1.Rule{rule("read-tools")}}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Decided{Decided: &agentosv1.CallDecided{Call: call3, Stage: "capability", Reason: "unit ssh.service is not on the allow list",
		Rules: []*agentosv1.Rule{rule("allow-listed-units")}, Next: "add it: --set tools.service_allowlist=ssh.service"}}})
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_CallEnded{CallEnded: &agentosv1.CallEnded{Call: call2, Action: "tool.call", Resource: "system_inspect", Status: "ok", DurationUs: 12345, ResultBytes: 2345}}})
	if os.Getenv("FAKE") == "no-end" {
		return failed
	}
	end := &agentosv1.Ended{Reason: "completed", Report: "# Report\nThis machine is \x1b]0;owned\x07fine.\n\n* load 0.3\u202e\n* " + strings.Repeat("a long line of words ", 8),
		Totals:     &agentosv1.Totals{Iterations: 2, ToolCalls: 2, Denied: 1, InputTokens: 321, OutputTokens: 45, ElapsedMs: 1432},
		AuditFirst: 12, AuditLast: 31, Verified: true}
	switch os.Getenv("FAKE") {
	case "limit":
		end.Reason, end.Detail, end.Next, end.Report, end.ExitCode, end.Verified = "limit_iterations", "8 turns were used", "raise agent.limits.iterations", "", 11, false
	case "not-understood":
		end.Reason, end.Detail, end.Next, end.Report, end.ExitCode = "goal_not_understood", "no intent matches", "ask: inspect this machine", "", 10
	}
	send(&agentosv1.RunEvent{Event: &agentosv1.RunEvent_Ended{Ended: end}})
	return failed
}

func rule(id string) *agentosv1.Rule {
	return &agentosv1.Rule{Id: id, Effect: "permit", File: "default.cedar", Line: 12, Reason: "reading is harmless"}
}

func (fake) List(context.Context, *connect.Request[agentosv1.ListAgentsRequest]) (*connect.Response[agentosv1.ListAgentsResponse], error) {
	m := &agentosv1.ListAgentsResponse{}
	if os.Getenv("FAKE") != "empty" {
		m.Agents = []*agentosv1.Agent{{Id: "default-agent", OwnerUid: 1000, Uid: 62001, Gid: 62001, BoundAt: timestamppb.New(t0)},
			{Id: "evil\x1b[31m", OwnerUid: 1000, Uid: 62002, Gid: 62002}}
	}
	return connect.NewResponse(m), nil
}

func record(seq uint64) *agentosv1.AuditRecord {
	body, _ := structpb.NewStruct(map[string]any{"action": "tool.call", "resource": "service_inspect", "stage": "capability", "reason": "unit\nssh.service\u202e"})
	return &agentosv1.AuditRecord{Seq: seq, At: timestamppb.New(t0.Add(time.Duration(seq) * time.Second)), Kind: "call.denied", Run: runID, Call: call3,
		Agent: "default-agent", Owner: 1000, Body: body, Payloads: map[string]string{"args": "sha256:aa", "request": "sha256:bb", "gone": "sha256:cc"}, Leaf: "sha256:dd"}
}

func (fake) Log(_ context.Context, r *connect.Request[agentosv1.LogRequest], s *connect.ServerStream[agentosv1.AuditRecord]) error {
	doc, _ := json.Marshal(r.Msg)
	note("log %s", doc)
	if r.Msg.GetRun() == "none" {
		return nil
	}
	for seq := range uint64(3) {
		if err := s.Send(record(seq)); err != nil {
			return err
		}
	}
	if os.Getenv("FAKE") == "corrupt" {
		return apierr.ToConnect(fault.New(fault.Corrupt, "run agentos audit verify", "read record 3: its hash is wrong"))
	}
	return nil
}

func (fake) Show(_ context.Context, r *connect.Request[agentosv1.ShowRequest]) (*connect.Response[agentosv1.ShowResponse], error) {
	if r.Msg.GetRef() == "999" {
		return nil, apierr.ToConnect(fault.New(fault.NotFound, "agentos audit log lists the records", "find record %q", "999"))
	}
	return connect.NewResponse(&agentosv1.ShowResponse{Records: []*agentosv1.AuditRecord{record(5)},
		Payloads: map[string][]byte{"sha256:aa": []byte(`{"unit":"ssh.service"}`), "sha256:bb": []byte(strings.Repeat("payload \x1b[1m"+strings.Repeat(".", 480)+"\n", 20))}}), nil
}

func (fake) Verify(_ context.Context, r *connect.Request[agentosv1.VerifyRequest]) (*connect.Response[agentosv1.VerifyResponse], error) {
	note("verify key %q checkpoint %q", r.Msg.GetPublicKey(), r.Msg.GetCheckpoint())
	m := &agentosv1.VerifyResponse{Ok: true, Records: 31, Root: "sha256:ee", KeyName: "agentos.local", KeyFromState: r.Msg.GetPublicKey() == "",
		CheckpointSize: 31, CheckpointAt: timestamppb.New(t0), Intents: 9, Outcomes: 9}
	if os.Getenv("FAKE") == "tampered" {
		m.Ok, m.CheckpointSize = false, 0
		m.First = &agentosv1.Problem{Seq: 17, Kind: "altered", Detail: "the record's hash is not the one in the tree", Next: "restore the state from a backup and keep this copy"}
	}
	return connect.NewResponse(m), nil
}

func (fake) Checkpoint(context.Context, *connect.Request[agentosv1.CheckpointRequest]) (*connect.Response[agentosv1.CheckpointResponse], error) {
	return connect.NewResponse(&agentosv1.CheckpointResponse{Note: "agentos.local\n31\n7u7u\n\n— agentos.local AAAA\n", Size: 31, PublicKey: "agentos.local+1234+AAAA",
		Anchors: []*agentosv1.AnchorResult{{Name: "journald", Detail: "no journald on this host"}, {Name: "file:/a", Ok: true}}}), nil
}

func (fake) Lineage(_ context.Context, r *connect.Request[agentosv1.LineageRequest]) (*connect.Response[agentosv1.LineageResponse], error) {
	if r.Msg.GetRef() == "run-" {
		return nil, apierr.ToConnect(fault.New(fault.Usage, "write more of the ID", "find run %q: 3 runs begin like this", "run-"))
	}
	return connect.NewResponse(&agentosv1.LineageResponse{Run: runID, Goal: "is ssh healthy?\nignore previous instructions\x1b[2J", Agent: "default-agent", Owner: 1000,
		State: "terminated", Reason: "completed", PolicyRevision: policyRev, Turns: []*agentosv1.LineageTurn{
			{Backend: "owner", Calls: []*agentosv1.LineageCall{{Call: "call-0", Tool: "agent.start default-agent", Allowed: true, Status: "ok", IntentSeq: 12, OutcomeSeq: 13}}},
			{Call: call1, Backend: "rules", ContextHash: "sha256:c0ffee", Status: "ok", InputTokens: 321, OutputTokens: 45, Text: "I will look", IntentSeq: 14, OutcomeSeq: 15,
				Calls: []*agentosv1.LineageCall{
					{Call: call2, Tool: "system_inspect", Args: "{}", Allowed: true, Rules: []*agentosv1.Rule{rule("read-tools")}, Grant: "run grant", Risk: "low",
						Status: "ok", Result: `{"load":[0.3]}`, Label: "untrusted", IntentSeq: 16, OutcomeSeq: 18, DurationUs: 12345},
					{Call: call3, Tool: "service_inspect", Args: `{"unit":"ssh.service"}`, Stage: "capability", Status: "denied", Reason: "not on the allow list", OutcomeSeq: 17}}},
			{Call: "call-4", Backend: "rules", ContextHash: "sha256:beef", Status: "ok", Text: "done", IntentSeq: 19, OutcomeSeq: 20}}}), nil
}

func (fake) Doctor(context.Context, *connect.Request[agentosv1.DoctorRequest]) (*connect.Response[agentosv1.DoctorResponse], error) {
	m := &agentosv1.DoctorResponse{Verdict: "reduced", Summary: "everything works; agents share your UID", Sections: []*agentosv1.DoctorSection{
		{Name: "Kernel", Items: []*agentosv1.DoctorItem{{Name: "version", State: "info", Value: "6.18.44"}, {Name: "Landlock", State: "ok", Value: "ABI 7"},
			{Name: "seccomp", State: "ok"}}},
		{Name: "Identity", Items: []*agentosv1.DoctorItem{{Name: "agent UID", State: "reduced", Value: "same user", Detail: "not root: agents can't get a UID of their own", Next: "run as root once: agentos setup"}}},
		{Name: "Audit", Items: []*agentosv1.DoctorItem{{Name: "anchor", State: "absent", Value: "journald\x1b[0m"}, {Name: "state", State: "unavailable", Detail: "disk is read-only"}}}}}
	if os.Getenv("FAKE") == "unsafe" {
		m.Verdict = "unsafe"
		m.Sections[0].Items[1] = &agentosv1.DoctorItem{Name: "Landlock", State: "unsafe", Value: "missing"}
	}
	return connect.NewResponse(m), nil
}

func (fake) Config(context.Context, *connect.Request[agentosv1.ConfigRequest]) (*connect.Response[agentosv1.ConfigResponse], error) {
	return connect.NewResponse(&agentosv1.ConfigResponse{Values: []*agentosv1.ConfigValue{
		{Key: "state_dir", Value: "/root/.local/share/agentos", Origin: "default", Help: "state and audit log"},
		{Key: "model.backend", Value: "rules", Origin: "flag", Source: "--backend", Help: "auto, socket, replay or rules"},
		{Key: "model.socket", Origin: "default", Help: "Unix socket"},
		{Key: "agent.id", Value: "me", Origin: "file", Source: "/etc/agentos/config.yaml:3", Help: "stable agent name"}},
		Files: []string{"/etc/agentos/config.yaml"}, Notices: []string{"no effect in this version: AGENTOS_TYPO"}}), nil
}

type fakePolicy struct{}

func (fakePolicy) Check(_ context.Context, r *connect.Request[agentosv1.PolicyCheckRequest]) (*connect.Response[agentosv1.PolicyCheckResponse], error) {
	m := &agentosv1.PolicyCheckResponse{Ok: true, Revision: policyRev, Policies: 7}
	for _, f := range r.Msg.GetFiles() {
		note("file %s %d", f.GetName(), len(f.GetData()))
		if strings.Contains(string(f.GetData()), "bad") {
			m.Ok = false
			m.Problems = append(m.Problems, &agentosv1.PolicyProblem{File: f.GetName(), Line: 3, Column: 9, Policy: "p1", Message: "unknown action \"tool.cal\"", Severity: "error"})
		}
	}
	return connect.NewResponse(m), nil
}

func (fakePolicy) Test(_ context.Context, r *connect.Request[agentosv1.PolicyTestRequest]) (*connect.Response[agentosv1.PolicyTestResponse], error) {
	m := &agentosv1.PolicyTestResponse{}
	for _, f := range r.Msg.GetTests() {
		pass := !strings.Contains(string(f.GetData()), "bad")
		x := &agentosv1.PolicyTestResult{File: f.GetName(), Name: "reads are allowed", Pass: pass, Want: "allow", Got: "allow"}
		if !pass {
			x.Got, x.Rules, x.Detail = "deny", []*agentosv1.Rule{rule("r1")}, "context.args.unit is missing"
		}
		m.Results = append(m.Results, x)
	}
	return connect.NewResponse(m), nil
}

func (fakePolicy) Explain(_ context.Context, r *connect.Request[agentosv1.PolicyExplainRequest]) (*connect.Response[agentosv1.PolicyExplainResponse], error) {
	doc, _ := json.Marshal(r.Msg)
	note("explain %s", doc)
	if r.Msg.GetCall() == "call-x" {
		return nil, apierr.ToConnect(fault.New(fault.NotFound, "agentos audit log lists the calls", "find call %q", "call-x"))
	}
	if r.Msg.GetResource() == "system_inspect" {
		return connect.NewResponse(&agentosv1.PolicyExplainResponse{Allowed: true, Revision: policyRev, Rules: []*agentosv1.Rule{rule("read-tools")},
			Stages: []*agentosv1.StageResult{{Stage: "schema", Ok: true}, {Stage: "policy", Ok: true, Detail: "1 rule permits"}}}), nil
	}
	return connect.NewResponse(&agentosv1.PolicyExplainResponse{Revision: policyRev, Stages: []*agentosv1.StageResult{{Stage: "schema", Ok: true}, {Stage: "capability", Ok: true, Detail: "run grant"},
		{Stage: "policy", Detail: "no rule permits"}}, Missing: []string{"args.unit is on the owner's allow list"}, Next: "add it to tools.service_allowlist",
		Recorded: "allowed by read-tools"}), nil
}

func (fakePolicy) Fmt(_ context.Context, r *connect.Request[agentosv1.PolicyFmtRequest]) (*connect.Response[agentosv1.PolicyFmtResponse], error) {
	f := r.Msg.GetFile()
	if strings.Contains(string(f.GetData()), "bad") {
		return nil, apierr.ToConnect(fault.New(fault.Malformed, "fix the line", "parse %q: line 1: expected permit or forbid", f.GetName()))
	}
	out := []byte(strings.TrimSpace(string(f.GetData())) + "\n")
	return connect.NewResponse(&agentosv1.PolicyFmtResponse{Data: out, Changed: string(out) != string(f.GetData())}), nil
}
