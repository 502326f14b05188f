// Package principal binds agents to Linux identities: which owner an agent
// belongs to, and under which UID and GID each part of its runs works.
//
// State owned: none; bindings live behind Store. Imports: lib/fault. Imported
// by: control. Invariants (OSA-02): no binding has UID or GID 0; a binding never
// changes once made; UIDs from the range are never given out twice; the
// identity a process really has is compared with the binding before every run.
// Tests: principal_test.go.
package principal

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"agentos/internal/lib/fault"
)

// Role is a part of a run that works under an identity of its own.
type Role string

// The roles of a run.
const (
	Agent Role = "agent" // the loop: reasons, holds nothing
	Shim  Role = "shim"  // speaks with the agent and the model
	Tool  Role = "tool"  // reads the machine
)

// Roles lists them in the order in which they are bound.
func Roles() []Role { return []Role{Agent, Shim, Tool} }

// Binding ties one role of an owner's agent to a Linux identity.
type Binding struct {
	Agent    string
	Role     Role
	Owner    uint32
	UID, GID uint32
	At       time.Time
}

// Range is where UIDs and GIDs are taken from: First to Last, inclusive.
type Range struct{ First, Last uint32 }

// Reserved is the default range: above what systemd, containers and
// subordinate-ID tools hand out, below 2^31.
var Reserved = Range{First: 1_900_000_000, Last: 1_900_999_999}

// Store keeps bindings.
type Store interface {
	// Binding returns the binding, or false when there is none.
	Binding(ctx context.Context, owner uint32, agent string, role Role) (Binding, bool, error)
	// Bind keeps b for good; a second binding of the same owner, agent and role
	// is an error. When b.UID is 0, the next identity of r that was never given
	// out is taken, for UID and GID alike.
	Bind(ctx context.Context, b Binding, r Range) (Binding, error)
}

// Credentials are a process's identity as the kernel reports it.
type Credentials struct{ UID, EUID, GID, EGID uint32 }

// Want is what a run asks for. UID and GID are 0 when not configured.
type Want struct {
	Agent    string
	Owner    uint32
	UID, GID uint32      // configured identity of the agent role
	Self     Credentials // of the supervising process
	At       time.Time
}

var agentID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Resolve returns the bindings of all roles, making those that don't exist yet.
// As root each role has an identity of its own; otherwise all roles work under
// the caller's, which a caller must report as weaker ("same user").
func Resolve(ctx context.Context, s Store, w Want, r Range) (map[Role]Binding, error) {
	if !agentID.MatchString(w.Agent) {
		return nil, fault.New(fault.Usage, "use lower-case letters, digits, '.', '_' and '-', 63 at most (agent.id, AGENTOS_AGENT_ID)",
			"agent ID %.80q is not usable", w.Agent)
	}
	out := make(map[Role]Binding, len(Roles()))
	for _, role := range Roles() {
		b, err := resolve(ctx, s, w, role, r)
		if err != nil {
			return nil, err
		}
		out[role] = b
	}
	return out, nil
}

func resolve(ctx context.Context, s Store, w Want, role Role, r Range) (Binding, error) {
	ask, err := ask(w, role)
	if err != nil {
		return Binding{}, err
	}
	b, ok, err := s.Binding(ctx, w.Owner, w.Agent, role)
	if err != nil {
		return Binding{}, err
	}
	if !ok {
		if b, err = s.Bind(ctx, ask, r); err != nil {
			return Binding{}, err
		}
	}
	if b.UID == 0 || b.GID == 0 {
		return Binding{}, zero(b.Agent)
	}
	if ask.UID != 0 && (ask.UID != b.UID || ask.GID != b.GID) {
		return Binding{}, fault.New(fault.Conflict,
			"a binding is for good: use another agent ID (agent.id, AGENTOS_AGENT_ID), or the identity that it has",
			"agent %q of owner %d is bound to %d:%d, not %d:%d", w.Agent, w.Owner, b.UID, b.GID, ask.UID, ask.GID)
	}
	return b, nil
}

// ask is the binding that the caller's situation calls for; UID 0 means one
// from the range.
func ask(w Want, role Role) (Binding, error) {
	b := Binding{Agent: w.Agent, Role: role, Owner: w.Owner, At: w.At}
	root := w.Self.EUID == 0
	switch {
	case !root:
		if w.UID != 0 && w.UID != w.Self.EUID || w.GID != 0 && w.GID != w.Self.EGID {
			return b, fault.New(fault.Denied, "only root can give an agent another identity; leave agent.uid and agent.gid unset",
				"this process runs as %d:%d and can't run an agent as %d:%d", w.Self.EUID, w.Self.EGID, w.UID, w.GID)
		}
		b.UID, b.GID = w.Self.EUID, w.Self.EGID
		if b.GID == 0 {
			return b, zero(w.Agent)
		}
	case role == Agent && (w.UID != 0 || w.GID != 0):
		if w.UID == 0 || w.GID == 0 {
			return b, zero(w.Agent)
		}
		b.UID, b.GID = w.UID, w.GID
	}
	return b, nil
}

func zero(agent string) error {
	return fault.New(fault.Denied, "give the agent a user and a group of its own, or leave agent.uid and agent.gid unset so that both come from the reserved range",
		"agent %q would run as UID 0 or GID 0, which is refused", agent)
}

// Verify compares the identity that a started process really has with its
// binding. Any difference, or a 0 anywhere, is an error: the process must not
// go on.
func Verify(b Binding, c Credentials) error {
	if c.UID == 0 || c.EUID == 0 || c.GID == 0 || c.EGID == 0 {
		return zero(b.Agent)
	}
	if c.UID != b.UID || c.EUID != b.UID || c.GID != b.GID || c.EGID != b.GID {
		return fault.New(fault.Denied, "this is a fault of AgentOS or of the host; the run was not started",
			"%s of agent %q runs as %s, bound to %d:%d", b.Role, b.Agent, c, b.UID, b.GID)
	}
	return nil
}

// String renders real and effective identity.
func (c Credentials) String() string {
	return fmt.Sprintf("%d(%d):%d(%d)", c.UID, c.EUID, c.GID, c.EGID)
}
