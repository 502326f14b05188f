//go:build linux

// Package supervisor carries one run of an agent from its first record to its
// last: it starts the shim and the loop under their identities, checks what the
// kernel says of them, passes their proposals to the gate and ends everything
// deterministically (INV-05).
//
// State owned: the parts of the run under way. Imports: api/{agentosv1,gatewire,
// runspec}, execution/{tool,toolproc}, host/{fdframe,procstatus,spawn}, lib,
// trusted. Imported by: control/daemon. It decides nothing: every effect,
// starting the agent included, is a call through Deps.Gate.
// Locks: run.mu guards the totals and proposals; a leaf. Goroutines of a run end
// before Run returns.
// Tests: supervisor_test.go; integration/once on the built binaries.
package supervisor

import (
	"context"
	"os"
	"time"

	pb "agentos/internal/api/agentosv1"
	"agentos/internal/api/gatewire"
	"agentos/internal/api/runspec"
	"agentos/internal/execution/tool"
	"agentos/internal/execution/toolproc"
	"agentos/internal/host/procstatus"
	"agentos/internal/trusted/audit"
	"agentos/internal/trusted/budget"
	"agentos/internal/trusted/call"
	"agentos/internal/trusted/capability"
	"agentos/internal/trusted/gate"
	"agentos/internal/trusted/principal"
)

// Gate is the door.
type Gate interface {
	OpenRun(run string) error
	StopRun(run string)
	Do(ctx context.Context, c call.Call, payloads []audit.Payload, effect gate.Effect) (*gate.Result, error)
	Refuse(c call.Call, reason error) error
}

// Deps is all that a run may touch.
type Deps struct {
	Gate   Gate
	Grants interface {
		Add(capability.Grant) error
		RevokeRun(run string)
	}
	Limits interface {
		SetLimit(budget.Key, budget.Amount)
	}
	Journal gate.Journal
	Tools   interface {
		Tool(name string) (tool.Descriptor, bool)
	}
	// Connect opens the model's connection for one admitted call; nil for
	// backends without one.
	Connect func(ctx context.Context) (*os.File, error)
	// Status reads a process's identity and locks.
	Status func(pid int) (procstatus.Status, error)
	// Seal closes the record: signs, anchors and verifies the log.
	Seal     func(ctx context.Context) Seal
	Binaries Binaries
	NewID    func(kind string) string // "run" → "run-…"
	Now      func() time.Time
}

// Binaries are the opened and verified sister programs.
type Binaries struct{ Loop, Shim, Tool *os.File }

// Seal is what closing the record gave.
type Seal struct {
	Checkpoint string
	Verified   bool
	Notices    []string
}

// Config is one agent's way to run.
type Config struct {
	Agent      string
	Owner      uint32
	Identities map[principal.Role]principal.Binding
	Root       bool // parts run under identities of their own
	Hello      gatewire.Hello
	BackendWhy string
	Replay     func() (*os.File, error)     // opens the replay script; nil without one
	ToolAs     map[string]toolproc.Identity // who each tool's process runs as, when Root
	Grants     []capability.Grant           // ID and Run are filled in
	Policy     string                       // revision, for the record
	Limits     runspec.Limits
	System     string
	Strength   []string
	Budget     budget.Amount // of one run
}

// Emit receives events in order, from one goroutine at a time.
type Emit func(*pb.RunEvent)

// Supervisor runs agents. Safe for concurrent use: each Run is its own.
type Supervisor struct {
	cfg  Config
	deps Deps
}

// New starts nothing.
func New(cfg Config, deps Deps) *Supervisor { return &Supervisor{cfg: cfg, deps: deps} }
