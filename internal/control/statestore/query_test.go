//go:build linux

package statestore

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/gate"
)

func TestLog(t *testing.T) {
	t.Parallel()
	s, _ := open(t, stateDir(t))
	run := func(id string, calls int) {
		start := audit.Entry{Kind: audit.KindRunStart, At: testTime, Run: id, Agent: "a"}
		mustCommit(t, s, gate.Tx{Entries: []audit.Entry{start}, Runs: []gate.RunState{{Run: id, Agent: "a", State: "running"}}})
		for i := range calls {
			in, out := intent(fmt.Sprintf("call-%s-%03d", id, i)), outcome(fmt.Sprintf("call-%s-%03d", id, i))
			in.Run, out.Run = id, id
			mustCommit(t, s, gate.Tx{Entries: []audit.Entry{in, out}})
		}
		end := audit.Entry{Kind: audit.KindRunEnd, At: testTime, Run: id, Agent: "a"}
		mustCommit(t, s, gate.Tx{Entries: []audit.Entry{end}, Runs: []gate.RunState{{Run: id, Agent: "a", State: "terminated", Reason: "completed"}}})
	}
	run("run-a1", 200) // records 1 to 402
	run("run-a2", 100) // 403 to 604
	late := intent("call-late")
	late.Run, late.Kind = "run-a1", audit.KindDenied
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{late}}) // 605, after its run's end
	tests := map[string]struct {
		f    Filter
		want []uint64 // first, last, count
	}{
		"all":               {Filter{}, []uint64{0, 605, 606}},
		"from":              {Filter{From: 300}, []uint64{300, 605, 306}},
		"from, limit":       {Filter{From: 250, Limit: 10}, []uint64{250, 259, 10}},
		"tail":              {Filter{Limit: 300, Tail: true}, []uint64{306, 605, 300}},
		"tail of a run":     {Filter{Run: "run-a2", Limit: 5, Tail: true}, []uint64{600, 604, 5}},
		"run":               {Filter{Run: "run-a2"}, []uint64{403, 604, 202}},
		"run, late record":  {Filter{Run: "run-a1"}, []uint64{1, 605, 403}},
		"call":              {Filter{Call: "call-run-a2-050"}, []uint64{504, 505, 2}},
		"kinds":             {Filter{Kinds: []audit.Kind{audit.KindRunEnd, audit.KindGenesis}}, []uint64{0, 604, 3}},
		"kind of a run":     {Filter{Run: "run-a1", Kinds: []audit.Kind{audit.KindDenied}}, []uint64{605, 605, 1}},
		"beyond the end":    {Filter{From: 606}, nil},
		"unknown call":      {Filter{Call: "call-none"}, nil},
		"unknown run":       {Filter{Run: "run-none"}, nil},
		"first of all runs": {Filter{Limit: 1}, []uint64{0, 0, 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var seqs []uint64
			for it, err := range s.Log(t.Context(), tt.f) {
				if err != nil {
					t.Fatal(err)
				}
				if n := len(seqs); n > 0 && seqs[n-1] >= it.Record.Seq {
					t.Fatalf("record %d after %d", it.Record.Seq, seqs[n-1])
				}
				seqs = append(seqs, it.Record.Seq)
			}
			var got []uint64
			if len(seqs) > 0 {
				got = []uint64{seqs[0], seqs[len(seqs)-1], uint64(len(seqs))}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("resolve", func(t *testing.T) {
		if id, err := s.ResolveRun(t.Context(), "run-a2"); err != nil || id != "run-a2" {
			t.Error(id, err)
		}
		if id, err := s.ResolveCall(t.Context(), "call-l"); err != nil || id != "call-late" {
			t.Error(id, err)
		}
		_, err := s.ResolveRun(t.Context(), "run-a")
		if fault.KindOf(err) != fault.Usage || fault.NextOf(err) != "give more characters: run-a1, run-a2" {
			t.Error(err, fault.NextOf(err))
		}
		_, err = s.ResolveCall(t.Context(), "call-run-a1")
		if fault.KindOf(err) != fault.Usage || !strings.HasSuffix(fault.NextOf(err), "call-run-a1-007, …") {
			t.Error(err, fault.NextOf(err))
		}
		for _, p := range []string{"call-x", "", "%", strings.Repeat("c", 200)} {
			if _, err := s.ResolveCall(t.Context(), p); err == nil {
				t.Errorf("prefix %q resolved", p)
			}
		}
	})
	t.Run("call", func(t *testing.T) {
		items, err := s.Call(t.Context(), "call-run-a1-150")
		if err != nil || len(items) != 2 || items[0].Record.Seq != 302 || items[1].Record.Kind != audit.KindOutcome {
			t.Error(items, err)
		}
		items, err = s.Call(t.Context(), "call-late")
		if err != nil || len(items) != 1 || items[0].Record.Kind != audit.KindDenied {
			t.Error(items, err)
		}
		if _, err := s.Call(t.Context(), "call-none"); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
	t.Run("record", func(t *testing.T) {
		for _, seq := range []uint64{0, 255, 256, 511, 512, 605} {
			if it, err := s.Record(t.Context(), seq); err != nil || it.Record.Seq != seq {
				t.Error(seq, it, err)
			}
		}
		for _, seq := range []uint64{606, 1 << 60} {
			if _, err := s.Record(t.Context(), seq); fault.KindOf(err) != fault.NotFound {
				t.Error(seq, err)
			}
		}
	})
	t.Run("runs", func(t *testing.T) {
		runs, err := s.Runs(t.Context(), 1)
		want := []Run{{Run: "run-a2", Agent: "a", State: "terminated", Reason: "completed", First: 403, End: 605}}
		if diff := cmp.Diff(want, runs); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if r, err := s.RunByID(t.Context(), "run-a1"); err != nil || r.End != 606 {
			t.Error(r, err)
		}
		if _, err := s.RunByID(t.Context(), "run-a"); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, stop := open(t, dir)
	secretish := bytes.Repeat([]byte("a text that should go away. "), 500)
	commit := func(call, media string, data []byte) string {
		e := intent(call)
		e.Kind = audit.KindDenied
		e.Payloads = []audit.Payload{{Name: "args", Media: media, Data: data}}
		r := mustCommit(t, s, gate.Tx{Entries: []audit.Entry{e}})
		it, err := s.Record(t.Context(), r.FirstSeq)
		if err != nil {
			t.Fatal(err)
		}
		return it.Record.Payloads["args"]
	}
	a := commit("call-1", "text/plain", secretish)
	b := commit("call-2", "text/plain", secretish)
	c := commit("call-3", "application/json", secretish)
	if a != b || a == c {
		t.Errorf("same content %s %s, other type %s", a, b, c)
	}
	p, err := s.Payload(t.Context(), a)
	if err != nil || !bytes.Equal(p.Data, secretish) || p.Media != "text/plain" {
		t.Errorf("payload: %v", err)
	}
	for range s.Log(t.Context(), Filter{}) { // a reader's snapshot
		if err := s.Forget(t.Context(), c); fault.KindOf(err) != fault.Conflict {
			t.Errorf("forgotten beside a reader: %v", err)
		}
		break
	}
	for _, x := range []string{a} {
		if err := s.Forget(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Payload(t.Context(), a); fault.KindOf(err) != fault.NotFound {
		t.Errorf("forgotten payload: %v", err)
	}
	if err := s.Forget(t.Context(), a); fault.KindOf(err) != fault.NotFound {
		t.Errorf("forgotten twice: %v", err)
	}
	d := commit("call-4", "text/plain", []byte("kept"))
	stop()
	verifyOK(t, dir, audit.Options{}) // the chain holds without them
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte("a text that should go away")) {
			t.Errorf("%s still holds a forgotten payload", e.Name())
		}
	}
	exec(t, dir, `UPDATE payloads SET data = x'00'`)
	r, err := OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Payload(t.Context(), d); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("changed payload: %v", err)
	}
}

func TestPrincipals(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, stop := open(t, dir)
	next := func(agent string, owner uint32) Binding {
		t.Helper()
		b, err := s.BindNext(t.Context(), agent, owner, 900, 905, testTime)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a := next("agent-a", 1000)
	if diff := cmp.Diff(Binding{Agent: "agent-a", Owner: 1000, UID: 900, GID: 900, BoundAt: testTime}, a); diff != "" {
		t.Error(diff)
	}
	if b := next("agent-a", 1001); b.UID != 901 {
		t.Errorf("another owner's agent of that name: %+v", b)
	}
	if again := next("agent-a", 1000); again != a {
		t.Errorf("bound again: %+v", again)
	}
	bind := func(b Binding, want fault.Kind) {
		t.Helper()
		if _, err := s.Bind(t.Context(), b); fault.KindOf(err) != want {
			t.Errorf("bind %+v: %v", b, err)
		}
	}
	bind(Binding{Agent: "fixed", Owner: 1000, UID: 902, GID: 902, BoundAt: testTime}, "")
	bind(Binding{Agent: "fixed", Owner: 1000, UID: 902, GID: 902, BoundAt: testTime}, "")
	bind(Binding{Agent: "fixed", Owner: 1000, UID: 903, GID: 903}, fault.Conflict)
	bind(Binding{Agent: "thief", Owner: 1000, UID: 900, GID: 900}, fault.Conflict)
	bind(Binding{Agent: "rootless-1", Owner: 1000, UID: 1000, GID: 1000, BoundAt: testTime}, "")
	bind(Binding{Agent: "rootless-2", Owner: 1000, UID: 1000, GID: 1000, BoundAt: testTime}, "")
	bind(Binding{Agent: "", Owner: 1000}, fault.Usage)
	if b := next("agent-b", 1000); b.UID != 903 {
		t.Errorf("after a fixed UID: %+v", b)
	}
	stop()
	exec(t, dir, `DELETE FROM principals WHERE agent = 'agent-b'`)
	s, _ = open(t, dir)
	if b := next("agent-c", 1000); b.UID != 904 {
		t.Errorf("a UID was given out twice: %+v", b)
	}
	if _, err := s.BindNext(t.Context(), "agent-d", 1000, 900, 905, testTime); fault.KindOf(err) != fault.Limit {
		t.Errorf("range used up: %v", err)
	}
	if b, err := s.Principal(t.Context(), "agent-a", 1000); err != nil || b != a {
		t.Error(b, err)
	}
	if _, err := s.Principal(t.Context(), "agent-x", 1000); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	if bs, err := s.Principals(t.Context()); err != nil || len(bs) != 6 {
		t.Error(len(bs), err)
	}
}
