//go:build linux

package auditapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/agentosv1/agentosv1connect"
	"agentos/internal/api/apierr"
	"agentos/internal/control/anchor"
	"agentos/internal/control/statestore"
	"agentos/internal/lib/canon"
	"agentos/internal/lib/chat"
	"agentos/internal/lib/fault"
	"agentos/internal/trusted/approval"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/label"
	"agentos/internal/trusted/policy"
)

// bench is a state directory that a real gate fills and the service reads,
// through its client.
type bench struct {
	t       *testing.T
	dir     string
	store   *statestore.Store
	gate    *gate.Gate
	client  agentosv1connect.AuditServiceClient
	anchors []anchor.Anchor
	close   func()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "state")}
	s, err := statestore.Open(t.Context(), statestore.Config{Dir: b.dir, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.close = func() {
		if b.close = func() {}; true {
			cancel()
			if err := errors.Join(<-done, s.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { b.close() })
	b.store = s
	b.gate = gate.New(gate.Deps{
		Catalog: b, Grants: b, Policy: b, Ledger: budget.NewLedger(budget.State{}), Approver: approval.Absent{}, Journal: s, Now: time.Now,
		Keys: func(s call.Subject) []budget.Key { return []budget.Key{budget.RunKey(s.Run)} },
	})
	svc := New(Deps{
		Reader: func(ctx context.Context, use func(*statestore.Reader) error) error {
			r, err := statestore.OpenReadOnly(ctx, b.dir)
			if err != nil {
				return err
			}
			defer r.Close()
			return use(r)
		},
		Anchors: func() ([]anchor.Anchor, error) { return b.anchors, nil },
	})
	_, h := agentosv1connect.NewAuditServiceHandler(svc)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	b.client = agentosv1connect.NewAuditServiceClient(srv.Client(), srv.URL)
	return b
}

func (b *bench) Target(c *call.Call) (gate.Target, error) {
	if c.Resource == "unknown" {
		return gate.Target{}, errors.New("no such tool")
	}
	return gate.Target{Type: "Tool", Effect: "read", Deadline: time.Minute, MaxResult: 1 << 20, Label: label.Label{Integrity: label.Untrusted}}, nil
}
func (b *bench) Check(*call.Call) (string, error) { return "grant-1", nil }
func (b *bench) Decide(c *call.Call, _ *gate.Target) policy.Decision {
	if strings.HasPrefix(c.Resource, "forbidden") {
		return policy.Decision{Revision: "rev", Rules: []policy.Rule{{ID: "no", Effect: "forbid", Reason: "not that"}}}
	}
	return policy.Decision{Allow: true, Revision: "rev", Rules: []policy.Rule{{ID: "yes", Effect: "permit"}}}
}

// begin records a run's start and the owner's agent.start.
func (b *bench) begin(run, goal string) {
	b.t.Helper()
	b.commit(gate.Tx{
		Entries: []audit.Entry{{Kind: audit.KindRunStart, At: time.Now().UTC(), Run: run, Agent: "a", Owner: 1000,
			Body: map[string]any{"policy": "rev"}, Payloads: []audit.Payload{{Name: "goal", Media: "text/plain", Data: []byte(goal)}}}},
		Runs: []gate.RunState{{Run: run, Agent: "a", Owner: 1000, State: "running"}},
	})
	if err := b.gate.OpenRun(run); err != nil {
		b.t.Fatal(err)
	}
	b.do("call-start-"+run, call.Subject{Owner: 1000, Run: run}, call.AgentStart, "a", `{}`, "")
}

func (b *bench) end(run string) {
	b.t.Helper()
	b.gate.StopRun(run)
	b.commit(gate.Tx{
		Entries: []audit.Entry{{Kind: audit.KindRunEnd, At: time.Now().UTC(), Run: run, Agent: "a", Owner: 1000, Body: map[string]any{"reason": "completed"}}},
		Runs:    []gate.RunState{{Run: run, Agent: "a", Owner: 1000, State: "terminated", Reason: "completed"}},
	})
}

func (b *bench) commit(tx gate.Tx) {
	b.t.Helper()
	if _, err := b.store.Commit(b.t.Context(), tx); err != nil {
		b.t.Fatal(err)
	}
}

// do passes a call through the gate; its effect gives result.
func (b *bench) do(id string, s call.Subject, a call.Action, resource, args, result string, during ...func()) {
	b.t.Helper()
	c, err := call.New(id, s, a, resource, []byte(args), time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = b.gate.Do(b.t.Context(), c, nil, func(context.Context, *gate.Permit) gate.Outcome {
		for _, f := range during {
			f()
		}
		o := gate.Outcome{Status: call.OK, Result: []byte(result), Media: "application/json", Facts: map[string]any{"input_tokens": int64(3), "output_tokens": int64(4)}}
		if resource == "broken" {
			o.Status, o.Reason = call.Error, "fell over"
		}
		return o
	})
	var d *gate.Denial
	if err != nil && !errors.As(err, &d) {
		b.t.Fatal(err)
	}
}

func (b *bench) tool(run, id, resource, args, result string, during ...func()) {
	b.t.Helper()
	b.do(id, call.Subject{Owner: 1000, Agent: "a", Run: run}, call.ToolCall, resource, args, result, during...)
}

func (b *bench) model(run, id, resource, says string, during ...func()) {
	b.t.Helper()
	args, err := canon.Marshal(map[string]any{"context": "sha256:c-" + id})
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := json.Marshal(chat.Response{Message: chat.Message{Role: "assistant", Text: says}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(id, call.Subject{Owner: 1000, Agent: "a", Run: run}, call.ModelGenerate, resource, string(args), string(resp), during...)
}

func (b *bench) lineage(ref string) (*pb.LineageResponse, error) {
	r, err := b.client.Lineage(b.t.Context(), connect.NewRequest(&pb.LineageRequest{Ref: ref}))
	if err != nil {
		return nil, apierr.FromConnect(err)
	}
	return r.Msg, nil
}

// story renders a lineage: a line a turn, a line a call.
func story(l *pb.LineageResponse) []string {
	out := []string{fmt.Sprintf("%s %q %s %s", l.GetRun(), l.GetGoal(), l.GetState(), l.GetReason())}
	for _, t := range l.GetTurns() {
		out = append(out, fmt.Sprintf("%s %s %s %s %d/%d %q", t.GetBackend(), t.GetCall(), t.GetContextHash(), t.GetStatus(), t.GetInputTokens(), t.GetOutputTokens(), t.GetText()))
		for _, c := range t.GetCalls() {
			var rules []string
			for _, r := range c.GetRules() {
				rules = append(rules, r.GetId())
			}
			out = append(out, fmt.Sprintf("  %s %s %s %v %s%s %v %s %q %s", c.GetCall(), c.GetTool(), c.GetArgs(), c.GetAllowed(), c.GetStage(), c.GetGrant(), rules, c.GetStatus(), c.GetReason(), c.GetResult()))
		}
	}
	return out
}

// fill is a run of three turns: parallel calls, denials, a failure, and a call
// that is still open when somebody looks.
func (b *bench) fill() (during []string) {
	b.begin("run-aa1", "look around")
	b.model("run-aa1", "call-m1", "socket", "first I look")
	// Two calls of one turn at a time: the records of one lie within the other's.
	b.tool("run-aa1", "call-t1", "inspect", `{"a":1}`, `{"x":1}`, func() { b.tool("run-aa1", "call-t2", "broken", `{}`, "") })
	b.tool("run-aa1", "call-t3", "forbidden", `{"b":"é"}`, "")
	b.tool("run-aa1", "call-t4", "unknown", `{}`, "")
	b.model("run-aa1", "call-m2", "socket", "then I wait", func() {
		l, err := b.lineage("run-aa1")
		if err != nil {
			b.t.Fatal(err)
		}
		during = story(l)
	})
	b.tool("run-aa1", "call-t5", "inspect", `{}`, `{"x":2}`)
	b.model("run-aa1", "call-m3", "forbidden-model", "")
	b.end("run-aa1")
	b.begin("run-aa2", "something else")
	b.model("run-aa2", "call-n1", "socket", "other")
	b.tool("run-aa2", "call-u1", "inspect", `{}`, `{"other":true}`)
	return during
}

// TestLineage is AOS-12.
func TestLineage(t *testing.T) {
	b := newBench(t)
	during := b.fill()
	owner := "owner    0/0 \"\""
	start := `  call-start-run-aa1 agent.start a {} true grant-1 [yes] ok "" `
	turn1 := []string{
		`socket call-m1 sha256:c-call-m1 ok 3/4 "first I look"`,
		`  call-t1 inspect {"a":1} true grant-1 [yes] ok "" {"x":1}`,
		`  call-t2 broken {} true grant-1 [yes] error "fell over" `,
		`  call-t3 forbidden {"b":"é"} false policy [no] denied "forbidden by no" `,
		`  call-t4 unknown {} false schema [] denied "no such tool" `,
	}
	turn2 := []string{`socket call-m2 sha256:c-call-m2 ok 3/4 "then I wait"`, `  call-t5 inspect {} true grant-1 [yes] ok "" {"x":2}`}
	turn3 := []string{`forbidden-model call-m3  denied 0/0 "denied at policy: forbidden by no"`}
	head := `run-aa1 "look around" terminated completed`
	join := func(parts ...[]string) (out []string) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for ref, want := range map[string][]string{
		"run-aa1":            join([]string{head, owner, start}, turn1, turn2, turn3),
		"call-m2":            join([]string{head}, turn2),
		"call-t2":            {head, turn1[0], turn1[2]},
		"call-t3":            {head, turn1[0], turn1[3]},
		"call-m3":            join([]string{head}, turn3),
		"call-start-run-aa1": {head, owner, start},
		"call-n":             {`run-aa2 "something else" running `, `socket call-n1 sha256:c-call-n1 ok 3/4 "other"`, `  call-u1 inspect {} true grant-1 [yes] ok "" {"other":true}`},
	} {
		l, err := b.lineage(ref)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if d := cmp.Diff(want, story(l)); d != "" {
			t.Errorf("%s:\n%s", ref, d)
		}
		if l.GetAgent() != "a" || l.GetOwner() != 1000 || l.GetPolicyRevision() != "rev" {
			t.Errorf("%s: %v", ref, l)
		}
	}
	open := `socket call-m2 sha256:c-call-m2 open 0/0 ""`
	if d := cmp.Diff(join([]string{`run-aa1 "look around" running `, owner, start}, turn1, []string{open}), during); d != "" {
		t.Errorf("while a call is open:\n%s", d)
	}
	for ref, want := range map[string]fault.Kind{"": fault.Usage, "run-aa": fault.Usage, "call-t": fault.Usage, "zzz": fault.NotFound} {
		_, err := b.lineage(ref)
		if fault.KindOf(err) != want || fault.NextOf(err) == "" {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// TestLineageOfLongTexts: texts are cut to whole letters; others can't be sent.
func TestLineageOfLongTexts(t *testing.T) {
	b := newBench(t)
	long := "x" + strings.Repeat("é", maxShown)
	b.begin("run-1", long)
	b.model("run-1", "call-m1", "socket", long)
	b.tool("run-1", "call-t1", "inspect", `{"a":"`+long+`"}`, `{"r":"`+long+`"}`)
	l, err := b.lineage("run-1")
	if err != nil {
		t.Fatal(err)
	}
	c := l.GetTurns()[1].GetCalls()[0]
	for what, s := range map[string]string{"goal": l.GetGoal(), "text": l.GetTurns()[1].GetText(), "args": c.GetArgs(), "result": c.GetResult()} {
		if len(s) > maxShown+3 || !strings.HasSuffix(s, "é…") {
			t.Errorf("%s has %d bytes and ends with %q", what, len(s), s[len(s)-6:])
		}
	}
}

// TestForgotten: a payload that was forgotten leaves its place; one that was
// changed is not told as if it were recorded.
func TestForgotten(t *testing.T) {
	b := newBench(t)
	b.fill()
	show := func(ref string) (*pb.ShowResponse, error) {
		r, err := b.client.Show(t.Context(), connect.NewRequest(&pb.ShowRequest{Ref: ref}))
		if err != nil {
			return nil, apierr.FromConnect(err)
		}
		return r.Msg, nil
	}
	s, err := show("call-t1")
	if err != nil || len(s.GetRecords()) != 2 || len(s.GetPayloads()) != 2 {
		t.Fatalf("%v %v", s, err)
	}
	args := s.GetRecords()[0].GetPayloads()["args"]
	if string(s.GetPayloads()[args]) != `{"a":1}` {
		t.Errorf("args %q", s.GetPayloads()[args])
	}
	if one, err := show(fmt.Sprint(s.GetRecords()[0].GetSeq())); err != nil || len(one.GetRecords()) != 1 || one.GetRecords()[0].GetCall() != "call-t1" {
		t.Errorf("by number: %v %v", one, err)
	}
	for ref, want := range map[string]fault.Kind{"99999": fault.NotFound, "zz": fault.NotFound, "call-t": fault.Usage} {
		if _, err := show(ref); fault.KindOf(err) != want {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := b.store.Forget(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	if s, err = show("call-t1"); err != nil || len(s.GetRecords()) != 2 || len(s.GetPayloads()) != 1 {
		t.Errorf("%v %v", s, err)
	}
	l, err := b.lineage("call-t1")
	if err != nil || l.GetTurns()[0].GetCalls()[0].GetArgs() != "(forgotten)" {
		t.Errorf("%v %v", l, err)
	}
	b.close()
	b.behind(`{"x":1}`, `{"x":9}`)
	if l, err := b.lineage("call-t1"); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("%v %v", l, err)
	}
	if s, err := show("call-t1"); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("%v %v", s, err)
	}
}

// behind changes bytes of the closed database, as somebody with its file could.
func (b *bench) behind(from, to string) {
	b.t.Helper()
	n := 0
	files, err := os.ReadDir(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(b.dir, f.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			b.t.Fatal(err)
		}
		if n += bytes.Count(data, []byte(from)); bytes.Contains(data, []byte(from)) {
			if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(from), []byte(to)), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if n == 0 {
		b.t.Fatalf("%q is nowhere in the state", from)
	}
}

func TestLog(t *testing.T) {
	b := newBench(t)
	b.fill()
	log := func(req *pb.LogRequest) ([]string, error) {
		s, err := b.client.Log(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, apierr.FromConnect(err)
		}
		defer s.Close()
		var out []string
		for s.Receive() {
			r := s.Msg()
			if r.GetBody() == nil || r.GetLeaf() == "" || !r.GetAt().IsValid() {
				t.Errorf("record %v", r)
			}
			out = append(out, r.GetKind()+" "+r.GetRun()+" "+r.GetCall())
		}
		return out, apierr.FromConnect(s.Err())
	}
	all, err := log(&pb.LogRequest{})
	if err != nil || len(all) != 25 {
		t.Fatalf("%d records: %s, %v", len(all), strings.Join(all, "\n"), err)
	}
	for name, tc := range map[string]struct {
		req  *pb.LogRequest
		want []string
	}{
		"run":      {&pb.LogRequest{Run: "run-aa2", Kinds: []string{"run.start", "run.end"}}, []string{"run.start run-aa2 "}},
		"call":     {&pb.LogRequest{Call: "call-t5"}, []string{"call.intent run-aa1 call-t5", "call.outcome run-aa1 call-t5"}},
		"kind":     {&pb.LogRequest{Kinds: []string{"call.denied"}}, []string{"call.denied run-aa1 call-t3", "call.denied run-aa1 call-t4", "call.denied run-aa1 call-m3"}},
		"first":    {&pb.LogRequest{Kinds: []string{"call.denied"}, Limit: 1}, []string{"call.denied run-aa1 call-t3"}},
		"last":     {&pb.LogRequest{Kinds: []string{"call.denied"}, Limit: 2, Tail: true}, []string{"call.denied run-aa1 call-t4", "call.denied run-aa1 call-m3"}},
		"from":     {&pb.LogRequest{From: uint64(len(all) - 1)}, all[len(all)-1:]},
		"no match": {&pb.LogRequest{Kinds: []string{"zzz"}}, nil},
	} {
		got, err := log(tc.req)
		if d := cmp.Diff(tc.want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	for _, req := range []*pb.LogRequest{{Run: "zz"}, {Call: "zz"}} {
		if _, err := log(req); fault.KindOf(err) != fault.NotFound {
			t.Errorf("%v: %v", req, err)
		}
	}
	if _, err := log(&pb.LogRequest{Run: "run-aa"}); fault.KindOf(err) != fault.Usage {
		t.Errorf("ambiguous: %v", err)
	}
}

// fake is an anchor that can fail.
type fake struct {
	name string
	err  error
	got  [][]byte
}

func (f *fake) Name() string { return f.name }
func (f *fake) Send(_ context.Context, n []byte) error {
	f.got = append(f.got, n)
	return f.err
}

func (b *bench) checkpoint() *pb.CheckpointResponse {
	b.t.Helper()
	r, err := b.client.Checkpoint(b.t.Context(), connect.NewRequest(&pb.CheckpointRequest{}))
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Msg
}

// TestCheckpoint: each anchor gets the note; one that fails is told and keeps
// neither the others nor the caller from it.
func TestCheckpoint(t *testing.T) {
	b := newBench(t)
	b.fill()
	bad, good := &fake{name: "bad", err: fault.New(fault.Unavailable, "start it", "nobody there")}, &fake{name: "good"}
	b.anchors = []anchor.Anchor{bad, good}
	cp := b.checkpoint()
	if cp.GetSize() != 25 || cp.GetPublicKey() != b.store.Key() || len(good.got) != 1 || string(good.got[0]) != cp.GetNote() {
		t.Errorf("%v, good got %d", cp, len(good.got))
	}
	var got []string
	for _, a := range cp.GetAnchors() {
		got = append(got, fmt.Sprintf("%s %v %s", a.GetName(), a.GetOk(), a.GetDetail()))
	}
	if d := cmp.Diff([]string{"bad false nobody there; next: start it", "good true "}, got); d != "" {
		t.Error(d)
	}
}

// TestVerify: against the key and checkpoints that somebody kept elsewhere.
func TestVerify(t *testing.T) {
	b := newBench(t)
	b.begin("run-0", "g")
	early := b.checkpoint()
	b.fill()
	late := b.checkpoint()
	b.close()
	verify := func(req *pb.VerifyRequest) (*pb.VerifyResponse, error) {
		r, err := b.client.Verify(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, apierr.FromConnect(err)
		}
		return r.Msg, nil
	}
	_, stranger, err := note.GenerateKey(rand.Reader, "agentos-log")
	if err != nil {
		t.Fatal(err)
	}
	key := early.GetPublicKey()
	for name, req := range map[string]*pb.VerifyRequest{
		"key of the state": {}, "kept key": {PublicKey: key}, "older": {PublicKey: key, Checkpoint: early.GetNote()},
		"newest": {PublicKey: key, Checkpoint: late.GetNote()},
	} {
		v, err := verify(req)
		if err != nil || !v.GetOk() || v.GetFirst() != nil || v.GetRecords() != late.GetSize() || v.GetKeyFromState() != (req.GetPublicKey() == "") || v.GetIntents() != v.GetOutcomes() {
			t.Errorf("%s: %v %v", name, v, err)
		}
	}
	for name, req := range map[string]*pb.VerifyRequest{
		"stranger's key": {PublicKey: stranger},
		"no key":         {PublicKey: "nonsense"},
		"no checkpoint":  {PublicKey: key, Checkpoint: "nonsense"},
		"unsigned":       {PublicKey: key, Checkpoint: strings.Split(early.GetNote(), "\n\n")[0] + "\n\n"},
		"changed":        {PublicKey: key, Checkpoint: strings.Replace(early.GetNote(), "\n"+fmt.Sprint(early.GetSize())+"\n", "\n1\n", 1)},
	} {
		if v, err := verify(req); err == nil && v.GetOk() {
			t.Errorf("%s: %v", name, v)
		}
	}
	b.behind(`"resource":"broken"`, `"resource":"mended"`)
	if v, err := verify(&pb.VerifyRequest{PublicKey: key}); err != nil || v.GetOk() || v.GetFirst().GetKind() != string(audit.Altered) || v.GetFirst().GetNext() == "" {
		t.Errorf("changed record: %v %v", v, err)
	}
}

// TestNoState: without a state directory every question is answered by that.
func TestNoState(t *testing.T) {
	b := newBench(t)
	b.close()
	b.dir = filepath.Join(t.TempDir(), "none")
	_, err := b.lineage("x")
	if fault.KindOf(apierr.FromConnect(err)) != fault.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading made it: %v", err)
	}
}
