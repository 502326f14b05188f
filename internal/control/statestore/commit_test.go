//go:build linux

package statestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
)

// Many goroutines commit transactions of random shape at once, some of them in
// conflict. What was acknowledged stands where its receipt says, what was
// refused left nothing, and the log verifies. Spec: INV-01, INV-03.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			interleave(t, seed)
		})
	}
}

func interleave(t *testing.T, seed uint64) {
	dir := stateDir(t)
	s, stop := open(t, dir)
	var mu sync.Mutex
	at := map[uint64]string{} // sequence number → kind and call
	used := int64(0)
	var wg sync.WaitGroup
	for g := range 24 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 12 {
				call := fmt.Sprintf("call-%02d-%03d", g, i)
				bad := rng.IntN(4) == 0
				tx := gate.Tx{Entries: []audit.Entry{intent(call)}, Budget: []budget.Change{reserve(call, 5)}}
				for k := range rng.IntN(3) {
					d := intent(fmt.Sprintf("%s-denied-%d", call, k))
					d.Kind = audit.KindDenied
					tx.Entries = append(tx.Entries, d)
				}
				commit := func(tx gate.Tx) {
					r, err := s.Commit(context.Background(), tx)
					if err != nil {
						t.Errorf("commit %s: %v", call, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for j, e := range tx.Entries {
						seq := r.FirstSeq + uint64(j)
						if seq >= r.Size || at[seq] != "" {
							t.Errorf("receipt %+v: record %d is outside or taken", r, seq)
						}
						at[seq] = string(e.Kind) + " " + e.Call
					}
				}
				refuse := func(tx gate.Tx) {
					if _, err := s.Commit(context.Background(), tx); fault.KindOf(err) != fault.Conflict {
						t.Errorf("commit %s in conflict: %v", call, err)
					}
				}
				if bad { // an outcome before its intent, with records that must vanish
					refuse(gate.Tx{Entries: append([]audit.Entry{intent(call + "-ghost")}, outcome(call))})
				}
				commit(tx)
				if bad {
					refuse(gate.Tx{Entries: []audit.Entry{outcome(call), intent(call)}})
					refuse(gate.Tx{Entries: []audit.Entry{outcome(call)}, Budget: []budget.Change{settle(call+"-none", 3)}})
				}
				commit(gate.Tx{Entries: []audit.Entry{outcome(call)}, Budget: []budget.Change{settle(call, 3)}})
				mu.Lock()
				used += 3
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(at)+1 != int(s.tree.size) {
		t.Errorf("%d records, %d acknowledged", s.tree.size, len(at))
	}
	for it, err := range s.Log(t.Context(), Filter{From: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := string(it.Record.Kind) + " " + it.Record.Call; got != at[it.Record.Seq] {
			t.Fatalf("record %d is %q, acknowledged %q", it.Record.Seq, got, at[it.Record.Seq])
		}
	}
	st, err := s.Budget(t.Context())
	if err != nil || len(st.Open) != 0 {
		t.Errorf("budget: %+v, %v", st.Open, err)
	}
	for _, b := range st.Balances {
		if b.Resource == budget.Tokens && b.Used != used {
			t.Errorf("%s used %d tokens, want %d", b.Key, b.Used, used)
		}
	}
	stop()
	verifyOK(t, dir, audit.Options{})
}

func TestCommitRefusals(t *testing.T) {
	t.Parallel()
	s, _ := open(t, stateDir(t))
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent("call-open")}, Budget: []budget.Change{reserve("call-open", 1)}})
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent("call-done")}})
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{outcome("call-done")}})
	ended := gate.RunState{Run: "run-0", Agent: "a", State: "terminated", Reason: "completed"}
	mustCommit(t, s, gate.Tx{Runs: []gate.RunState{ended}})
	denied := intent("call-open")
	denied.Kind = audit.KindDenied
	bigBody := intent("call-x")
	bigBody.Body = map[string]any{"x": strings.Repeat("a", audit.MaxBody)}
	deep := intent("call-x")
	deep.Body = map[string]any{"x": nested(audit.MaxBodyDepth)}
	badID := intent("call x")
	noCall := intent("")
	badKind := intent("call-x")
	badKind.Kind = "call.maybe"
	twice := intent("call-x")
	twice.Payloads = []audit.Payload{{Name: "args"}, {Name: "args"}}
	badName := intent("call-x")
	badName.Payloads = []audit.Payload{{Name: "Args"}}
	tests := map[string]struct {
		tx   gate.Tx
		kind fault.Kind
	}{
		"second intent, open":            {gate.Tx{Entries: []audit.Entry{intent("call-open")}}, fault.Conflict},
		"second intent, closed":          {gate.Tx{Entries: []audit.Entry{intent("call-done")}}, fault.Conflict},
		"second intent, same tx":         {gate.Tx{Entries: []audit.Entry{intent("call-x"), intent("call-x")}}, fault.Conflict},
		"second outcome":                 {gate.Tx{Entries: []audit.Entry{outcome("call-done")}}, fault.Conflict},
		"second outcome, same tx":        {gate.Tx{Entries: []audit.Entry{outcome("call-open"), outcome("call-open")}}, fault.Conflict},
		"outcome without intent":         {gate.Tx{Entries: []audit.Entry{outcome("call-x")}}, fault.Conflict},
		"denial of an admitted call":     {gate.Tx{Entries: []audit.Entry{denied}}, fault.Conflict},
		"second reservation":             {gate.Tx{Budget: []budget.Change{reserve("call-open", 1)}}, fault.Conflict},
		"settlement without reservation": {gate.Tx{Budget: []budget.Change{settle("call-done", 1)}}, fault.Conflict},
		"run ended twice":                {gate.Tx{Runs: []gate.RunState{ended}}, fault.Conflict},
		"body too large":                 {gate.Tx{Entries: []audit.Entry{bigBody}}, fault.Malformed},
		"body too deep":                  {gate.Tx{Entries: []audit.Entry{deep}}, fault.Malformed},
		"no ID":                          {gate.Tx{Entries: []audit.Entry{badID}}, fault.Malformed},
		"intent without call":            {gate.Tx{Entries: []audit.Entry{noCall}}, fault.Malformed},
		"unknown kind":                   {gate.Tx{Entries: []audit.Entry{badKind}}, fault.Malformed},
		"payload name twice":             {gate.Tx{Entries: []audit.Entry{twice}}, fault.Malformed},
		"payload name":                   {gate.Tx{Entries: []audit.Entry{badName}}, fault.Malformed},
		"negative amount":                {gate.Tx{Budget: []budget.Change{reserve("call-x", -1)}}, fault.Malformed},
		"neither reserve nor settle":     {gate.Tx{Budget: []budget.Change{{}}}, fault.Malformed},
		"too many records":               {gate.Tx{Entries: make([]audit.Entry, maxEntries+1)}, fault.Malformed},
	}
	size := s.tree.size
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Commit(t.Context(), tt.tx); fault.KindOf(err) != tt.kind || fault.NextOf(err) == "" {
				t.Errorf("got %v (%s), want %s with a next step", err, fault.KindOf(err), tt.kind)
			}
			if s.tree.size != size {
				t.Errorf("the log grew to %d records", s.tree.size)
			}
		})
	}
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{outcome("call-open")}}) // and it still works
}

func nested(n int) any {
	if n == 0 {
		return 1
	}
	return []any{nested(n - 1)}
}

func TestCommitAfterCancel(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, err := Open(t.Context(), Config{Dir: dir, Now: fixedNow})
	if err != nil {
		t.Fatal(err)
	}
	// No writer yet: the caller gives up, and its Tx is never written.
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, gate.Tx{Entries: []audit.Entry{intent("call-1")}})
		errs <- err
	}()
	for len(s.reqs) == 0 && len(errs) == 0 {
		runtime.Gosched() // until it is queued
	}
	cancel()
	if err := <-errs; fault.KindOf(err) != fault.Cancelled {
		t.Errorf("cancelled commit: %v", err)
	}
	run, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Run(run); err != nil { // drains what is queued
		t.Fatal(err)
	}
	if s.tree.size != 1 {
		t.Errorf("a Tx that was given up was written: %d records", s.tree.size)
	}
	if _, err := s.Commit(t.Context(), gate.Tx{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("commit after the writer's end: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Run drains: a commit that was queued when the context ended is durable.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Dir: stateDir(t), Now: fixedNow})
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 8)
	for i := range 8 {
		go func() {
			_, err := s.Commit(context.Background(), gate.Tx{Entries: []audit.Entry{intent(fmt.Sprint("call-", i))}})
			errs <- err
		}()
	}
	for len(s.reqs) < 8 {
		runtime.Gosched() // until all are queued
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if s.tree.size != 9 {
		t.Errorf("%d records", s.tree.size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// After a failure that isn't a full disk nobody knows what the disk holds.
func TestClosedForGood(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, _ := open(t, dir)
	fill(t, s, 3)
	if _, err := s.conn.ExecContext(t.Context(), `ALTER TABLE edge RENAME TO gone`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := s.Commit(t.Context(), gate.Tx{Entries: []audit.Entry{intent("call-x")}})
		if fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), "closed for good") || fault.NextOf(err) == "" {
			t.Errorf("got %v", err)
		}
	}
	if s.tree.size != 3 {
		t.Errorf("the tree in memory went on: %d", s.tree.size)
	}
	if _, err := s.BindNext(t.Context(), "a", 1, 10, 20, testTime); !errors.Is(err, s.failed) {
		t.Errorf("bind: %v", err)
	}
}
