//go:build linux

// Package wrapped carries one run of somebody else's program in a sandbox, from
// its first record to its last: shim, sandbox, input, output, end.
//
// State owned: the run's processes, its subscribers and the tail of its output.
// Imports: api/{agentosv1,gatewire,launchwire}, control/launcher, host/{fdframe,
// procstatus,spawn}, lib, trusted. Imported by: control/{daemon,runapi}. It
// decides nothing: the start is the call agent.start through Deps.Gate.
// Locks: Run.mu, a leaf. Invariants: INV-01 (recorded before anything starts),
// INV-05 (when Done is closed nothing of the run is left: sandbox, shim, door).
// The shim holds the sandbox's lifeline: its death is the sandbox's.
// Tests: wrapped_test.go; integration/run on the built binaries.
package wrapped

import (
	"context"
	"os"
	"sync"
	"time"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/control/launcher"
	"agentos/internal/host/fdframe"
	"agentos/internal/host/procstatus"
	"agentos/internal/host/spawn"
	"agentos/internal/lib/sandboxplan"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"
)

// Deps is all that a run may touch.
type Deps struct {
	Gate interface {
		OpenRun(run string) error
		StopRun(run string)
		Do(ctx context.Context, c call.Call, payloads []audit.Payload, effect gate.Effect) (*gate.Result, error)
	}
	Limits interface {
		SetLimit(budget.Key, budget.Amount)
	}
	Journal  gate.Journal
	Launcher interface {
		Launch(ctx context.Context, p sandboxplan.Plan, lifeline *os.File) (*launcher.Sandbox, error)
		Stop(run string) error
		Signal(run, signal string) error
	}
	Status func(pid int) (procstatus.Status, error)
	// Usage counts what control groups hold; -1 is unknown.
	Usage func(groups []string) (processes, memory int64)
	// Seal anchors the log and returns what a person must know of it.
	Seal  func(ctx context.Context) []string
	Shim  *os.File // opened and verified program
	NewID func(kind string) string
	Now   func() time.Time
}

// Config is what to run.
type Config struct {
	Plan    sandboxplan.Plan // its Run is the run's ID
	Name    string
	Profile string
	Agent   string // principal that the run acts as
	Owner   uint32
	Shim    principal.Binding
	Root    bool // the shim runs under its own identity
	Policy  string
	Notices []string
	// Watch are paths that were absent at the start and through which a program of
	// the owner's would run what the agent wrote. One that appears is reported.
	Watch []string
	// Scratch is a folder of this run's own, removed at its end; empty: none.
	Scratch string
}

// Run is one run. Safe for concurrent use.
type Run struct {
	ID   string
	cfg  Config
	deps Deps

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu       sync.Mutex
	subs     map[int]*Subscriber
	nextSub  int
	tail     *ring
	began    time.Time
	firstSeq uint64
	started  *pb.RunStarted
	exited   *pb.RunExited
	state    string
	stopping bool          // somebody asked for the end
	sent     uint64        // input bytes on their way
	more     chan struct{} // closed and replaced when some were taken

	wire     *fdframe.Conn
	shim     *spawn.Process
	sandbox  *launcher.Sandbox
	drained  chan struct{} // closed when the shim has passed on all output
	wireDone chan struct{} // closed when the shim's wire is gone
}

// tailBytes is how much of the newest output is kept for logs and attach.
const tailBytes = 256 << 10

// New starts nothing.
func New(cfg Config, deps Deps) *Run {
	r := &Run{
		ID: cfg.Plan.Run, cfg: cfg, deps: deps, done: make(chan struct{}), subs: map[int]*Subscriber{}, tail: newRing(tailBytes),
		drained: make(chan struct{}), wireDone: make(chan struct{}), state: "created", more: make(chan struct{}),
	}
	return r
}

// Done is closed when nothing of the run is left and its end is recorded.
func (r *Run) Done() <-chan struct{} { return r.done }

// Started is what Start reported; Exited is nil while the run goes on.
func (r *Run) Started() *pb.RunStarted { r.mu.Lock(); defer r.mu.Unlock(); return r.started }

// Exited is how the run ended, or nil.
func (r *Run) Exited() *pb.RunExited { r.mu.Lock(); defer r.mu.Unlock(); return r.exited }

// Owner is whose run it is.
func (r *Run) Owner() uint32 { return r.cfg.Owner }

// Plan is the sandbox's plan.
func (r *Run) Plan() sandboxplan.Plan { return r.cfg.Plan }

// Summary describes the run for a list.
func (r *Run) Summary() *pb.RunSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &pb.RunSummary{Run: r.ID, Name: r.cfg.Name, Profile: r.cfg.Profile, State: r.state, Command: commandLine(r.cfg.Plan.Command), Uid: r.cfg.Plan.Identity.UID}
	if !r.began.IsZero() {
		s.Started = timestamp(r.began)
	}
	if r.exited != nil {
		s.Reason = r.exited.GetReason()
	} else if r.sandbox != nil {
		n, bytes := r.deps.Usage(r.sandbox.Started.Cgroup)
		s.Processes, s.MemoryBytes = max(n, 0), max(bytes, 0)
	}
	return s
}
