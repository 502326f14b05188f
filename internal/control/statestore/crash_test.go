//go:build linux

package statestore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/gate"
)

const childEnv = "AGENTOS_TEST_STATESTORE_CHILD"

func TestMain(m *testing.M) {
	if dir, ok := strings.CutPrefix(os.Getenv(childEnv), "commit:"); ok {
		if err := commitForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir, ok := strings.CutPrefix(os.Getenv(childEnv), "open:"); ok {
		if _, err := Open(context.Background(), Config{Dir: dir}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("open")
		return // without Close: as good as a crash
	}
	os.Exit(m.Run())
}

// commitForever is the child: several callers commit runs of calls and print
// each record after it was acknowledged, until somebody kills the process.
func commitForever(dir string) error {
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	ack := func(r gate.Receipt, tx gate.Tx) {
		mu.Lock()
		defer mu.Unlock()
		for i, e := range tx.Entries {
			fmt.Printf("%d %s %s\n", r.FirstSeq+uint64(i), e.Kind, e.Call)
		}
	}
	errs := make(chan error, 8)
	go func() { errs <- s.Run(context.Background()) }()
	for g := range 6 {
		go func() {
			for i := 0; ; i++ {
				call := fmt.Sprintf("call-%d-%d-%d", os.Getpid(), g, i)
				in := gate.Tx{Entries: []audit.Entry{intent(call)}, Budget: []budget.Change{reserve(call, 7)},
					Runs: []gate.RunState{{Run: fmt.Sprintf("run-%d-%d", os.Getpid(), g), Agent: "agent-1", State: "running"}}}
				out := gate.Tx{Entries: []audit.Entry{outcome(call)}, Budget: []budget.Change{settle(call, 2)}}
				for _, tx := range []gate.Tx{in, out} {
					r, err := s.Commit(context.Background(), tx)
					if err != nil {
						errs <- err
						return
					}
					ack(r, tx)
				}
			}
		}()
	}
	return <-errs
}

// kill starts the child, kills it after about n acknowledged records, and
// returns all records that it acknowledged.
func kill(t *testing.T, dir string, n int) map[string]string {
	t.Helper()
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=commit:"+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := map[string]string{}
	lines := bufio.NewScanner(pipe)
	for i := 0; lines.Scan(); i++ {
		if i == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		seq, what, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			t.Fatalf("child said %q", lines.Text())
		}
		acked[seq] = what
	}
	_ = cmd.Wait() // killed
	if stderr.Len() > 0 || len(acked) <= n {
		t.Fatalf("child: %d records, %s", len(acked), stderr.String())
	}
	return acked
}

// The kill -9 matrix: what was acknowledged is there, the chain verifies, every
// intent has exactly one outcome, nothing stays reserved. Spec: INV-01, INV-03.
func TestKill(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	dir := stateDir(t)
	all := map[string]string{}
	for round := range 12 {
		for seq, what := range kill(t, dir, 1+rng.IntN(400)) {
			if old, twice := all[seq]; twice {
				t.Fatalf("round %d: record %s acknowledged as %q and %q", round, seq, old, what)
			}
			all[seq] = what
		}
		if round%3 == 2 {
			killRecovery(t, dir, rng)
		}
		if round%2 == 1 {
			continue // the next child recovers
		}
		s, stop := open(t, dir)
		checkRecovered(t, s, all)
		stop()
		verifyOK(t, dir, audit.Options{})
	}
}

// killRecovery kills processes while they open, that is, while they recover.
func killRecovery(t *testing.T, dir string, rng *rand.Rand) {
	t.Helper()
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2+rng.IntN(40))*time.Millisecond)
		cmd := osexec.CommandContext(ctx, os.Args[0]) // killed when the time is over
		cmd.Env = append(os.Environ(), childEnv+"=open:"+dir)
		out, err := cmd.CombinedOutput()
		if err == nil && string(out) != "open\n" || err != nil && ctx.Err() == nil {
			t.Errorf("recovering child: %v: %s", err, out)
		}
		cancel()
	}
}

func checkRecovered(t *testing.T, s *Store, acked map[string]string) {
	t.Helper()
	found, unknown, recoveries := 0, 0, 0
	outcomes := map[string]int{}
	for it, err := range s.Log(t.Context(), Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		r := it.Record
		if what, ok := acked[fmt.Sprint(r.Seq)]; ok {
			found++
			if got := string(r.Kind) + " " + r.Call; got != what {
				t.Fatalf("record %d is %q, acknowledged %q", r.Seq, got, what)
			}
		}
		switch r.Kind {
		case audit.KindIntent:
			outcomes[r.Call] += 0
		case audit.KindOutcome:
			outcomes[r.Call]++
			if strings.Contains(string(r.Body), `"status":"unknown"`) {
				unknown++
			}
		case audit.KindRecovery:
			recoveries++
		}
	}
	if found != len(acked) {
		t.Errorf("%d of %d acknowledged records are there", found, len(acked))
	}
	for call, n := range outcomes {
		if n != 1 {
			t.Errorf("call %s has %d outcomes", call, n)
		}
	}
	if unknown == 0 || recoveries == 0 {
		t.Errorf("%d unknown outcomes in %d recoveries: the crashes hit nothing", unknown, recoveries)
	}
	st, err := s.Budget(t.Context())
	if err != nil || len(st.Open) > 0 {
		t.Errorf("reservations left: %v, %v", st.Open, err)
	}
	want := int64(2*(len(outcomes)-unknown) + 7*unknown) // settled by the child, or in full by recovery
	for _, b := range st.Balances {
		if b.Resource == budget.Tokens && b.Used != want {
			t.Errorf("%s used %d tokens, want %d", b.Key, b.Used, want)
		}
	}
	runs, err := s.Runs(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.State != "failed" || r.Reason != "crashed" || r.End == 0 {
			t.Errorf("run after a crash: %+v", r)
		}
	}
}

// An intent that stays open while bundles fill up is found again after a crash,
// though recovery doesn't read the whole log.
func TestRecoverOldIntent(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s, stop := open(t, dir)
	fill(t, s, 301)
	mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent("call-old")}, Budget: []budget.Change{reserve("call-old", 9)}})
	for i := range 400 {
		call := fmt.Sprint("call-later-", i)
		mustCommit(t, s, gate.Tx{Entries: []audit.Entry{intent(call), outcome(call)}})
	}
	stop()
	for range 2 { // the second start finds nothing left
		s, stop = open(t, dir)
		items, err := s.Call(t.Context(), "call-old")
		if err != nil || len(items) != 2 || !strings.Contains(string(items[1].Record.Body), "unknown") {
			t.Fatalf("%+v, %v", items, err)
		}
		if s.tree.size != 302+800+2 { // outcome, recovery
			t.Errorf("%d records", s.tree.size)
		}
		st, err := s.Budget(t.Context())
		if err != nil || len(st.Open) != 0 || st.Balances[0].Used != 9 {
			t.Errorf("%+v, %v", st, err)
		}
		stop()
	}
	verifyOK(t, dir, audit.Options{})
}
