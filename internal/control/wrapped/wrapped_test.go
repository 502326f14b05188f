//go:build linux

package wrapped

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/control/launcher"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/procstatus"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"

	"os"
)

// world is a gate and a journal that remember, and refuse when told to.
type world struct {
	kinds  []audit.Kind
	ends   []string // reasons of run.end
	denied error
	lost   error // journal failure
	open   map[string]bool
	ran    int
	sealed int
}

func (w *world) OpenRun(run string) error           { w.open[run] = true; return nil }
func (w *world) StopRun(run string)                 { delete(w.open, run) }
func (w *world) SetLimit(budget.Key, budget.Amount) {}
func (w *world) Commit(_ context.Context, tx gate.Tx) (gate.Receipt, error) {
	if w.lost != nil {
		return gate.Receipt{}, w.lost
	}
	for _, e := range tx.Entries {
		w.kinds = append(w.kinds, e.Kind)
	}
	for _, r := range tx.Runs {
		if r.Reason != "" {
			w.ends = append(w.ends, r.Reason)
		}
	}
	return gate.Receipt{FirstSeq: uint64(len(w.kinds))}, nil
}

func (w *world) Do(ctx context.Context, c call.Call, _ []audit.Payload, effect gate.Effect) (*gate.Result, error) {
	if w.denied != nil {
		return nil, w.denied
	}
	w.ran++
	p := &gate.Permit{Call: c}
	return &gate.Result{Permit: p, Outcome: effect(ctx, p)}, nil
}

// noLauncher must not be reached.
type noLauncher struct{ t *testing.T }

func (l noLauncher) Launch(context.Context, sandboxplan.Plan, *os.File) (*launcher.Sandbox, error) {
	l.t.Error("launched")
	return nil, errors.New("no")
}
func (l noLauncher) Stop(string) error           { return nil }
func (l noLauncher) Signal(string, string) error { return nil }

func newRun(t *testing.T, w *world) *Run {
	t.Helper()
	w.open = map[string]bool{}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shim, err := spawn.OpenBinary(self)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Plan: sandboxplan.Plan{Run: "run-1", Command: []string{"true"}}, Name: "n", Agent: "n", Owner: 1000,
		Shim: principal.Binding{Role: principal.Shim, Agent: "n", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
	}, Deps{Gate: w, Limits: w, Journal: w, Launcher: noLauncher{t}, Status: procstatus.Read, Usage: func([]string) (int64, int64) { return -1, -1 }, Seal: func(context.Context) []string { w.sealed++; return []string{"not anchored"} },
		Shim: shim, NewID: func(k string) string { return k + "-1" }, Now: time.Now})
}

// TestNothingWithoutItsRecord: a start that can't be recorded starts nothing.
func TestNothingWithoutItsRecord(t *testing.T) {
	w := &world{lost: errors.New("disk full")}
	r := newRun(t, w)
	if err := r.Start(t.Context()); err == nil || w.ran != 0 {
		t.Fatalf("%v, %d effects", err, w.ran)
	}
	<-r.Done()
}

// TestDenied: the gate's refusal ends the run with its record.
func TestDenied(t *testing.T) {
	w := &world{denied: &gate.Denial{Stage: gate.StagePolicy, Reason: "no", Next: "ask", Kind: fault.Denied}}
	r := newRun(t, w)
	err := r.Start(t.Context())
	if fault.KindOf(err) != fault.Denied {
		t.Fatalf("%v", err)
	}
	<-r.Done()
	if len(w.ends) != 1 || w.ends[0] != "refused" || w.sealed != 1 || len(w.open) != 0 {
		t.Errorf("%+v", w)
	}
	sub, leave := r.Subscribe(true)
	defer leave()
	if o := <-sub.C; o.GetExited().GetReason() != "refused" {
		t.Errorf("late subscriber got %+v", o)
	}
}

// TestShimThatIsNone: a program that doesn't speak the protocol ends the start;
// the test binary itself, which exits at once, plays it.
func TestShimThatIsNone(t *testing.T) {
	w := &world{}
	r := newRun(t, w)
	if err := r.Start(t.Context()); err == nil {
		t.Fatal("started")
	}
	<-r.Done()
	select {
	case <-r.shim.Done():
	default:
		t.Error("the shim lives")
	}
}

func TestMain(m *testing.M) {
	if os.Args[0] == "agentos-shim" {
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func TestSubscribers(t *testing.T) {
	r := newRun(t, &world{})
	r.output(t.Context(), 1, []byte("before "))
	a, leaveA := r.Subscribe(true)
	b, leaveB := r.Subscribe(false)
	r.output(t.Context(), 2, []byte("after"))
	leaveB()
	leaveB() // twice is harmless
	r.output(t.Context(), 1, []byte("!"))
	r.finish(&pb.RunExited{Code: 4})
	var got bytes.Buffer
	for o := range a.C {
		got.Write(o.GetStdout())
		got.Write(o.GetStderr())
		if x := o.GetExited(); x != nil {
			got.WriteString(strings.Repeat("X", int(x.GetCode())))
		}
	}
	if got.String() != "before after!XXXX" {
		t.Errorf("%q", got.String())
	}
	if o := <-b.C; string(o.GetStderr()) != "after" {
		t.Errorf("%+v", o)
	}
	leaveA()
}

// TestSlowReaderHoldsBack: output waits for the one who reads, and goes on when
// they leave.
func TestSlowReaderHoldsBack(t *testing.T) {
	r := newRun(t, &world{})
	_, leave := r.Subscribe(false)
	done := make(chan struct{})
	go func() {
		for range 200 { // more than a subscriber's buffer
			r.output(context.Background(), 1, []byte("x"))
		}
		close(done)
	}()
	select {
	case <-done:
		t.Error("nobody reads, and yet all went through")
	case <-time.After(50 * time.Millisecond):
	}
	leave()
	<-done
}

func TestRingKeepsTheNewest(t *testing.T) {
	r := newRing(10)
	for i := range 100 {
		r.write([]byte{byte('a' + i%26)})
	}
	if got := string(r.bytes()); got != "mnopqrstuv" {
		t.Errorf("%q", got)
	}
}

// TestInputWindow: no more is sent than the program's side has room for.
func TestInputWindow(t *testing.T) {
	r := newRun(t, &world{})
	r.ctx, r.cancel = context.WithCancelCause(t.Context())
	a, b, err := fdframe.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := fdframe.Inherited(a)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := fdframe.Inherited(b)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	r.wire = fdframe.New(ours, gatewire.MaxMessage)
	far := fdframe.New(theirs, gatewire.MaxMessage)
	total := make(chan int, 1)
	go func() {
		n := 0
		for {
			m, _, err := far.Read()
			if err != nil {
				total <- n
				return
			}
			_, blob, err := gatewire.DecodeDown(m)
			if err != nil {
				t.Error(err)
			}
			n += len(blob)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	in := &pb.RunInput{Input: &pb.RunInput_Stdin{Stdin: make([]byte, 2*gatewire.RunWindow)}}
	if err := r.Input(ctx, in); err == nil {
		t.Error("twice the window went out at once")
	}
	r.credit(gatewire.RunWindow)
	if err := r.Input(t.Context(), &pb.RunInput{Input: &pb.RunInput_Stdin{Stdin: make([]byte, gatewire.RunWindow)}}); err != nil {
		t.Error(err)
	}
	r.wire.Close()
	if n := <-total; n != 2*gatewire.RunWindow {
		t.Errorf("%d bytes went out", n)
	}
}

func TestCommandLine(t *testing.T) {
	for want, argv := range map[string][]string{
		"ls -la":             {"ls", "-la"},
		"sh -c 'echo $HOME'": {"sh", "-c", "echo $HOME"},
		`'it'\''s' ''`:       {"it's", ""},
	} {
		if got := commandLine(argv); got != want {
			t.Errorf("%q: %s", argv, got)
		}
	}
}
